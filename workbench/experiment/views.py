"""The attributes of an `Experiment` that show one thing of its training."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from workbench.experiment.mutations import Settings
from workbench.trust import printable

if TYPE_CHECKING:
    from workbench.experiment.loop.scalars import ScalarLog
    from workbench.experiment.recipe.schedule_forecast import ScheduleForecast
    from workbench.experiment.report.captures import CaptureStore
    from workbench.experiment.report.run_directory import RunFolder
    from workbench.modes import ModeSet
    from workbench.modes.effects.step_times import StepTimings
    from workbench.records import CarryRow, Failure, Marker, NewerModel, ScheduleState
    from workbench.records.panel import Status


class Delegates(Settings):
    """What can be read of an experiment at any time; what can be set as well is in `Settings`."""

    _folder: RunFolder
    _forecast: ScheduleForecast
    dropped_points: int
    """Metric points lost because the disk was slow or full."""
    created_at: float
    """Unix time, seconds."""

    # -- parts ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Of the experiment and of its run directory."""
        return self._training.name

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer; a hot swap gives it the parameters of the new model."""
        return self._training.optimizer

    @property
    def schedule(self) -> ScheduleState | None:
        """The learning-rate schedule with the rates to come; None without one.

        The rates are computed between steps, a few at a time, while this is asked for.
        """
        return self._forecast.look(self._look_ahead)

    @property
    def modeset(self) -> ModeSet:
        """The modes of the next step, as objects."""
        return self._training.modeset

    @property
    def device(self) -> torch.device:
        """Where it trains."""
        return self._training.device

    @property
    def seed(self) -> int:
        """What the run was seeded with."""
        return self._training.seed

    @property
    def scalars(self) -> ScalarLog:
        """Every scalar logged so far."""
        return self._training.scalars

    @property
    def timings(self) -> StepTimings:
        """Seconds per step, by modes."""
        return self._training.timings

    @property
    def captures(self) -> CaptureStore:
        """Graph and memory records."""
        return self._training.captures

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._folder.path

    # -- state ------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """What it is doing."""
        return self._training.board.status

    @property
    def message(self) -> str:
        """The one status line."""
        return self._training.board.message

    @property
    def notes(self) -> list[str]:
        """What a person should know about this experiment, one sentence each."""
        return self._training.board.notes

    @property
    def failure(self) -> Failure | None:
        """Why it stopped by itself, None when it did not."""
        return self._training.board.failure

    @property
    def newer_model(self) -> NewerModel | None:
        """After a failure: that the code builds another model now, and what would swap it in.

        So it is where ``__init__`` was mended and the class's cell has run again: `resume` takes
        new methods, but not what the old ``__init__`` has built.
        """
        found = self._training.newer_model()
        return None if found is None else found.told

    @property
    def markers(self) -> tuple[Marker, ...]:
        """Changes of modes, learning rate and model, by step."""
        return self._training.board.markers

    @property
    def carried(self) -> tuple[CarryRow, ...]:
        """What became of every parameter and buffer in the last hot swap."""
        return self._training.carried

    @property
    def step_count(self) -> int:
        """Steps done."""
        return self._training.step_count

    @property
    def epoch(self) -> int:
        """The epoch under way, from 1; the last one when the run is over, 0 before any step."""
        return self._runner.epoch

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch, without a last batch that the model refuses; 0 while unknown."""
        return self._training.cursor.steps_per_epoch

    @property
    def total_steps(self) -> int:
        """The step at which the current or next run ends; 0 while unknown."""
        if self.status == "idle":
            return self.epochs * self.steps_per_epoch
        return self._runner.plan.total_steps(self._training)

    @property
    def samples_per_s(self) -> float | None:
        """Throughput over the last seconds, None before it was measured."""
        return self._training.measures.samples_per_s

    @property
    def seconds_left(self) -> float | None:
        """At the present speed, None while unknown or not training."""
        speed, left = self._training.measures.steps_per_s, self.total_steps - self.step_count
        if self.status != "training" or not speed or left < 0 or not self.total_steps:
            return None
        return left / speed

    @property
    def loss_name(self) -> str:
        """What the loss is called: ``cross entropy``."""
        return self._training.loss.name

    @property
    def best_accuracy(self) -> float | None:
        """The best validation accuracy so far, 0..1."""
        return self._training.best_accuracy

    @property
    def started_at(self) -> float | None:
        """Unix time of the last start, seconds."""
        return self._training.board.started_at

    def _look_ahead(self, work: Callable[[], object]) -> None:
        if not self._closed:
            self._runner.submit(work, light=True)

    def summary(self) -> str:
        """A few readable lines."""
        total = f" of {self.total_steps:,}" if self.total_steps else ""
        lines = [f"Experiment {self.name}: {self.status}, step {self.step_count:,}{total}"]
        for name in ("train/loss", "val/loss", "val/accuracy"):
            last = self.scalars.last(name)
            if last and math.isfinite(last[0]):
                of = f", {self._training.loss.name}" if name.endswith("/loss") else ""
                lines.append(f"  {name} {last[0]:.4g}{of}")
        lines.append(f"  modes {self.modes}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(printable(" ".join(line[:300].splitlines())) for line in lines)

    def __repr__(self) -> str:
        return self.summary()
