"""The first batch, if it was inspected before the first step.

A loader with an order of its own gives a batch once, so the batch that was inspected is that of the
first step. The run must be the same as without the inspection: it is seeded at its first step, and
what a cell does with NumPy's and Python's generators until then belongs to the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.experiment.state.rng import RandomState

if TYPE_CHECKING:
    import torch

    from workbench.experiment.data.cursor import Cursor

_OTHER_NUMBERS = (
    "the first batch was fetched for inspection before the run, with numbers that NumPy's or "
    "Python's generator returned then; a cell has changed the state of that generator since, and "
    "the loader cannot return the batch again"
)


class EarlyBatch:
    """Random draws of fetching a first batch, so that the run can continue as if it had made them.

    Args:
        cursor: cursor that is about to fetch it.
        device: device that is trained on.
    """

    def __init__(self, cursor: Cursor, device: torch.device) -> None:
        self._cursor = cursor
        self._generators = [(one, one.get_state()) for one in cursor.source.generators]
        self._before, self._after = RandomState(device), RandomState(device)
        self._before.save()
        self._drew_outside_torch = False

    def fetched(self) -> None:
        """Record that the batch was fetched."""
        self._drew_outside_torch = self._before.moved_outside_torch()
        self._after.save()

    def begin(self) -> str:
        """Begin the run, with torch seeded; return a note on what could not be kept."""
        if not self._cursor.holds_batch:
            return ""
        if not self._drew_outside_torch:
            self._after.restore_torch()
            return ""
        if not self._before.moved_outside_torch():
            self._after.restore()
            return ""
        if not self._cursor.source.can_begin_again:
            self._after.restore_torch()
            return _OTHER_NUMBERS
        for generator, state in self._generators:
            generator.set_state(state)
        self._cursor.begin_again()
        return ""
