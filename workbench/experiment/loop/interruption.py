"""An exception that comes when the weights of a step have been written already.

A hook after the optimizer's step may raise (an average of the weights, a log), or the optimizer in
the middle of its update. Nothing can be put back then: the step counts as done, its batch is not
computed again, and the failure says how far the update went.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from workbench.experiment.loop.step import StepResult
    from workbench.records import Failure


class Interruption:
    """What ended a step behind its update, or in the middle of it.

    Args:
        error: what was raised, with its traceback.
        result: the step's.
        moved: how many parameters had been written.
        of: how many have a gradient.
    """

    def __init__(self, error: BaseException, result: StepResult, moved: int, of: int) -> None:
        self.cause: tuple[BaseException, StepResult] | None = error, result
        """Until the step is counted: both hold its tensors."""
        self._is_whole = _is_behind_update(error)
        self._moved, self._of = moved, of

    def take(self) -> BaseException | None:
        """What is to be raised once the step has been counted."""
        cause, self.cause = self.cause, None
        return None if cause is None else cause[0]

    def told(self, failure: Failure, step: int) -> tuple[Failure, str]:
        """The failure and the status line, which say how far the step went.

        Args:
            failure: as that of a step that was not applied.
            step: its number, counted from 1.
        """
        name = failure.title.rpartition(": ")[2]
        if self._is_whole:
            state = (
                f"It was raised after the update of step {step:,}, which was applied. Weights and "
                f"optimizer are those of step {step:,}."
            )
            text = f"step {step:,}: {name} after its update, which counts; run stopped"
        else:
            state = (
                f"It was raised in the middle of the update of step {step:,}: {self._moved:,} of "
                f"{self._of:,} parameters with a gradient had been written, and stay so. The step "
                "counts as done; the state before it is in the last checkpoint at best."
            )
            text = f"step {step:,}: {name} in the middle of its update; run stopped"
        return replace(failure, subtitle=state, step=step), text


def _is_behind_update(error: BaseException) -> bool:
    """Whether the optimizer's own step had returned.

    Torch wraps it in a function that calls hooks before and after it
    (`torch.optim.Optimizer.profile_hook_step`), and keeps what it returned for them.
    """
    tb = error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if code.co_qualname.startswith(torch.optim.Optimizer.profile_hook_step.__qualname__):
            return "out" in tb.tb_frame.f_locals
        tb = tb.tb_next
    return False
