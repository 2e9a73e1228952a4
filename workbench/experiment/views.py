"""The read-only attributes of an `Experiment`, each of which shows one part of its training."""

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
    """What can be read of an experiment at any time; what can also be set is in `Settings`."""

    _folder: RunFolder
    _forecast: ScheduleForecast
    dropped_points: int
    """Number of metric points lost because the disk was slow or full."""
    created_at: float
    """Unix time of creation, in seconds."""

    # -- parts ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the experiment and of its run directory."""
        return self._training.name

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer; a hot swap gives it the parameters of the new model."""
        return self._training.optimizer

    @property
    def schedule(self) -> ScheduleState | None:
        """The learning-rate schedule with its upcoming rates; None without a schedule.

        The rates are computed between steps, a few at a time, as long as this attribute is queried.
        """
        return self._forecast.look(self._look_ahead)

    @property
    def modeset(self) -> ModeSet:
        """The modes of the next step, as objects."""
        return self._training.modeset

    @property
    def device(self) -> torch.device:
        """The device that it trains on."""
        return self._training.device

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self._training.seed

    @property
    def scalars(self) -> ScalarLog:
        """Every scalar logged so far."""
        return self._training.scalars

    @property
    def timings(self) -> StepTimings:
        """Seconds per step, by mode string."""
        return self._training.timings

    @property
    def captures(self) -> CaptureStore:
        """Graph and memory records that were captured."""
        return self._training.captures

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._folder.path

    # -- state ------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """Current status of the experiment."""
        return self._training.board.status

    @property
    def message(self) -> str:
        """Text of the status line."""
        return self._training.board.message

    @property
    def notes(self) -> list[str]:
        """What the user should know about this experiment, one sentence each."""
        return self._training.board.notes

    @property
    def failure(self) -> Failure | None:
        """Why it stopped by itself; None if it did not."""
        return self._training.board.failure

    @property
    def newer_model(self) -> NewerModel | None:
        """After a failure: whether the code now builds another model, and what would swap it in.

        This is the case if ``__init__`` was corrected and the cell of the class was run again:
        `resume` uses new methods, but not a new ``__init__``, because the old one has already built
        the model.
        """
        found = self._training.newer_model()
        return None if found is None else found.told

    @property
    def markers(self) -> tuple[Marker, ...]:
        """Changes of modes, learning rate and model, by step."""
        return self._training.board.markers

    @property
    def carried(self) -> tuple[CarryRow, ...]:
        """What happened to every parameter and buffer in the last hot swap."""
        return self._training.carried

    @property
    def step_count(self) -> int:
        """Number of steps done."""
        return self._training.step_count

    @property
    def epoch(self) -> int:
        """The epoch in progress, from 1; the last one when the run is over, 0 before any step."""
        return self._runner.epoch

    @property
    def steps_per_epoch(self) -> int:
        """Steps per epoch, without a last batch that the model refuses; 0 while unknown."""
        return self._training.cursor.steps_per_epoch

    @property
    def total_steps(self) -> int:
        """The step at which the current or next run ends; 0 while unknown."""
        if self.status == "idle":
            return self.epochs * self.steps_per_epoch
        return self._runner.plan.total_steps(self._training)

    @property
    def samples_per_s(self) -> float | None:
        """Throughput over the last seconds, in samples per second; None before it was measured."""
        return self._training.measures.samples_per_s

    @property
    def seconds_left(self) -> float | None:
        """Remaining time in seconds at the present speed; None while unknown or not training."""
        speed, left = self._training.measures.steps_per_s, self.total_steps - self.step_count
        if self.status != "training" or not speed or left < 0 or not self.total_steps:
            return None
        return left / speed

    @property
    def loss_name(self) -> str:
        """Name of the loss, such as ``cross entropy``."""
        return self._training.loss.name

    @property
    def best_accuracy(self) -> float | None:
        """The best validation accuracy so far, in the range 0..1."""
        return self._training.best_accuracy

    @property
    def started_at(self) -> float | None:
        """Unix time of the last start, seconds."""
        return self._training.board.started_at

    def _look_ahead(self, work: Callable[[], object]) -> None:
        if not self._closed:
            self._runner.submit(work, light=True)

    def summary(self) -> str:
        """Return a summary in a few lines of text."""
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
