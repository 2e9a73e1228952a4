"""What is read of an `Experiment` and worked out from its training, its run and its settings.

What is one attribute of the training is read from it directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.experiment.recipe.schedule_forecast import ScheduleForecast
from workbench.experiment.report.facts import facts, model_facts
from workbench.trust import printable

if TYPE_CHECKING:
    from workbench.experiment.runtime.runner import Runner
    from workbench.experiment.settings import Settings
    from workbench.experiment.training import Training
    from workbench.records import Fact, ScheduleState


class Readings:
    """Progress, upcoming rates and descriptions of a training that ``runner`` advances."""

    def __init__(self, training: Training, runner: Runner, settings: Settings) -> None:
        self._training = training
        self._runner = runner
        self._settings = settings
        self._forecast = ScheduleForecast(training, settings.planned_length)
        self._model_facts: tuple[Any, str, str] = (None, "", "")
        """The guard for which they were described, and the two descriptions."""

    @property
    def total_steps(self) -> int:
        """The step at which the current or next run ends; 0 while unknown."""
        if self._training.board.status == "idle":
            return self._settings.epochs * self._training.cursor.steps_per_epoch
        return self._runner.plan.total_steps(self._training)

    @property
    def seconds_left(self) -> float | None:
        """Remaining time in seconds at the present speed; None while unknown or not training."""
        training, total = self._training, self.total_steps
        speed, left = training.measures.steps_per_s, total - training.step_count
        if training.board.status != "training" or not speed or left < 0 or not total:
            return None
        return left / speed

    def schedule(self) -> ScheduleState | None:
        """Return the learning-rate schedule with its upcoming rates; None without a schedule.

        The rates are computed between steps, a few at a time, as long as this is called.
        """
        return self._forecast.get(self._submit)

    def facts(self) -> tuple[Fact, ...]:
        """Describe what will run, in a few labelled lines."""
        if self._model_facts[0] is not self._training.guard:
            self._model_facts = (self._training.guard, *model_facts(self._training))
        return facts(self._training, *self._model_facts[1:])

    def summary(self) -> str:
        """Return a summary in a few lines of text."""
        training, total = self._training, self.total_steps
        of = f" of {total:,}" if total else ""
        status = training.board.status
        lines = [f"Experiment {training.name}: {status}, step {training.step_count:,}{of}"]
        for name in ("train/loss", "val/loss", "val/accuracy"):
            last = training.scalars.last(name)
            if last and math.isfinite(last[0]):
                kind = f", {training.loss.name}" if name.endswith("/loss") else ""
                lines.append(f"  {name} {last[0]:.4g}{kind}")
        lines.append(f"  modes {training.modes}")
        lines += [f"  note: {note}" for note in training.board.notes]
        return "\n".join(printable(" ".join(line[:300].splitlines())) for line in lines)

    def _submit(self, work: Callable[[], object]) -> None:
        if not self._settings.closed:
            self._runner.submit(work, light=True)
