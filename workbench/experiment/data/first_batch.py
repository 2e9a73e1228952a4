"""The first batch, where somebody looked at it before the first step.

A loader with an order of its own gives a batch once, so the one that was looked at is the first
step's. The run must be the one that nobody looked at: it is seeded at its first step, and what a
cell does with NumPy's and Python's generators until then is the run's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.experiment.state.rng import RandomState

if TYPE_CHECKING:
    import torch

    from workbench.experiment.data.cursor import Cursor

_OTHER_NUMBERS = (
    "the first batch was fetched when it was looked at, with numbers that NumPy's or Python's "
    "generator gave then; a cell has moved it since, and the loader cannot give the batch again"
)


class EarlyBatch:
    """What fetching a first batch has drawn, so that the run may have drawn it.

    Args:
        cursor: that is about to fetch it.
        device: that is trained on.
    """

    def __init__(self, cursor: Cursor, device: torch.device) -> None:
        self._cursor = cursor
        self._generators = [(one, one.get_state()) for one in cursor.source.generators]
        self._before, self._after = RandomState(device), RandomState(device)
        self._before.save()
        self._drew_beside_torch = False

    def fetched(self) -> None:
        """The batch is there."""
        self._drew_beside_torch = self._before.moved_beside_torch()
        self._after.save()

    def begin(self) -> str:
        """The run begins, with torch seeded; a note on what could not be kept."""
        if not self._cursor.holds_batch:
            return ""
        if not self._drew_beside_torch:
            self._after.restore_torch()
            return ""
        if not self._before.moved_beside_torch():
            self._after.restore()
            return ""
        if not self._cursor.source.can_begin_again:
            self._after.restore_torch()
            return _OTHER_NUMBERS
        for generator, state in self._generators:
            generator.set_state(state)
        self._cursor.begin_again()
        return ""
