"""Steps of an experiment's optimizer that are not the training's: a cell calls ``step()`` too.

A cell may do so on purpose, or run the loop of before once more. The weights are then those that
the cell has made, and the training goes on from them; it says so.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any

import torch


class ForeignSteps:
    """Counts the steps of one optimizer that another thread than the training's took.

    Args:
        optimizer: that is watched, by a hook after its steps that costs less than 1 us.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._thread = 0
        self._count = 0
        register = getattr(optimizer, "register_step_post_hook", None)
        if register is not None:  # what only looks like an optimizer has none
            register(self._after_step)

    def begin(self, next_step: int) -> str:
        """This thread trains from now on; a note on steps that were taken since `end`."""
        count, self._count = self._count, 0
        self._thread = get_ident()
        if not count:
            return ""
        return (
            f"the optimizer was stepped {_times(count)} by a cell before step {next_step:,}, which "
            "goes on from the weights that this made"
        )

    def end(self) -> None:
        """No thread trains any more."""
        self._thread = 0

    def note(self, next_step: int) -> str:
        """A note on steps that others took while this thread trained, since the last time."""
        count, self._count = self._count, 0
        if not count:
            return ""
        return (
            f"the optimizer was stepped {_times(count)} by a cell while it trained, before step "
            f"{next_step:,}, with the gradients that were there at that moment: pause first"
        )

    def _after_step(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if get_ident() != self._thread:
            self._count += 1


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
