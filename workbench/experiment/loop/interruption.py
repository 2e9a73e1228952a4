"""An exception that is raised when the weights of a step have already been written.

A hook after the optimizer's step may raise (an average of the weights, a log), or the optimizer in
the middle of its update. Nothing can be restored then: the step counts as done, its batch is not
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
    """What ended a step after its update, or in the middle of it.

    Args:
        error: what was raised, with its traceback.
        result: the result of the step.
        moved: number of parameters that had been written.
        of: number of parameters that have a gradient.
    """

    def __init__(self, error: BaseException, result: StepResult, moved: int, of: int) -> None:
        self.cause: tuple[BaseException, StepResult] | None = error, result
        """Kept until the step is counted, as both hold its tensors."""
        self._is_whole = _is_behind_update(error)
        self._moved, self._of = moved, of

    def take(self) -> BaseException | None:
        """Return what is to be raised once the step has been counted."""
        cause, self.cause = self.cause, None
        return None if cause is None else cause[0]

    def explain(self, failure: Failure, step: int) -> tuple[Failure, str]:
        """Return the failure and the status line, which say how far the step went.

        Args:
            failure: the failure as for a step that was not applied.
            step: number of the step, counted from 1.
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
                f"{self._of:,} parameters with a gradient had been written, and keep the new "
                "values. The step counts as done; the last checkpoint may have the state before it."
            )
            text = f"step {step:,}: {name} in the middle of its update; run stopped"
        return replace(failure, subtitle=state, step=step), text


def _is_behind_update(error: BaseException) -> bool:
    """Whether the optimizer's own step had returned.

    Torch wraps it in a function that calls hooks before and after it
    (`torch.optim.Optimizer.profile_hook_step`), and keeps its result for them.
    """
    tb = error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if code.co_qualname.startswith(torch.optim.Optimizer.profile_hook_step.__qualname__):
            return "out" in tb.tb_frame.f_locals
        tb = tb.tb_next
    return False
