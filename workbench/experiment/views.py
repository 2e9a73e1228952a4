"""The attributes of an `Experiment` that show or set one thing of its training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from workbench.allocator.limit import CardLimit
from workbench.experiment.out_of_memory import CardUse, refuse_what_cannot_begin
from workbench.experiment.setup import check_model, find_modes, positive, whole

if TYPE_CHECKING:
    from workbench.experiment.captures import CaptureStore
    from workbench.experiment.rundir import RunFolder
    from workbench.experiment.runner import Runner
    from workbench.experiment.scalars import ScalarLog
    from workbench.experiment.training import Training
    from workbench.modes import ModeSet
    from workbench.modes.effects import StepTimings
    from workbench.records import CarryRow, Failure, Marker
    from workbench.records.panel import Status


class Delegates:
    """What can be read of an experiment at any time, and what can be set at any time.

    Settings take effect at the next step boundary; where nothing runs, at once.
    """

    _training: Training
    _runner: Runner
    _folder: RunFolder
    _epochs: int
    dropped_points: int
    """Metric points lost because the disk was slow or full."""
    created_at: float
    """Unix time, seconds."""

    # -- settings ---------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The model. Assigning another one is a hot swap (`carried` says what was kept)."""
        return self._training.model

    @model.setter
    def model(self, value: nn.Module) -> None:
        model = check_model(value)
        refused = self.modeset.refusal(model)
        if refused:
            raise ValueError(f"{refused}; change exp.modes first")
        self._runner.submit(lambda: self._training.set_model(model))

    @property
    def modes(self) -> str:
        """The modes of the next step, such as ``"compile+bf16"``."""
        return self._training.modes

    @modes.setter
    def modes(self, value: str) -> None:
        modeset = find_modes(value, self.device, self.model)
        self._runner.submit(lambda: self._training.set_modes(modeset))

    @property
    def card(self) -> str | None:
        """The card that steps and validations are run as on, such as ``"8 GiB"``; None: none.

        What this machine has is used as ever; a request that such a card could not serve raises
        ``torch.OutOfMemoryError`` where it is made. Set it to a name (``"RTX 4090"``), an amount or
        bytes, with the allocator's settings after a comma: ``"8 GiB, expandable_segments:True"``.
        """
        card = self._training.card
        return None if card is None else str(card.limit)

    @card.setter
    def card(self, value: str | int | None) -> None:
        limit = None if value is None else CardLimit.parse(value)
        if limit is not None:
            refuse_what_cannot_begin(self._training, limit)
        self._runner.submit(lambda: self._training.set_card(limit))

    @property
    def card_use(self) -> CardUse | None:
        """Bytes allocated and reserved on the card that is played; None without one."""
        card = self._training.card
        return None if card is None else card.use()

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch of the training data; None where batches come ready-made.

        Setting it cuts what is left of the epoch anew: every sample is still seen once an epoch, in
        the order that the seed gives, whatever the size. Steps are counted on. Validation follows
        where its batches were as large. The learning rate stays.
        """
        return self._training.cursor.source.batch_size

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        size = whole(value, "batch_size")
        train, val = self._training.cursor.source, self._training.val
        if size == train.batch_size:
            return
        resized, also = train.with_batch_size(size), None
        if val is not None and val.repeats and val.batch_size == train.batch_size:
            also = val.with_batch_size(size)
        self._runner.submit(lambda: self._training.set_batches(resized, also))

    @property
    def val_batch_size(self) -> int | None:
        """Samples in a batch of the validation data; None without any, or where it is not ours."""
        val = self._training.val
        return None if val is None else val.batch_size

    @val_batch_size.setter
    def val_batch_size(self, value: int) -> None:
        size, val = whole(value, "val_batch_size"), self._training.val
        if val is None:
            raise ValueError("there is no validation data whose batch size could be set")
        resized = val.with_batch_size(size)
        self._runner.submit(lambda: self._training.set_batches(None, resized))

    @property
    def learning_rate(self) -> float | None:
        """Of the first parameter group; setting it keeps the other groups' ratios to it."""
        return self._training.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        rate = positive(value, "learning_rate")
        self._runner.submit(lambda: self._training.set_learning_rate(rate))

    @property
    def epochs(self) -> int:
        """Length of the next run, or of the one under way."""
        return self._epochs

    @epochs.setter
    def epochs(self, value: int) -> None:
        change = whole(value, "epochs") - self._epochs
        self._epochs += change
        if self.status not in ("idle", "finished", "stopped"):
            self._runner.submit(
                lambda: self._runner.plan.lengthen(change, self._training.cursor.epoch)
            )

    # -- parts ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Of the experiment and of its run directory."""
        return self._training.name

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer; a new one after a hot swap."""
        return self._training.optimizer

    @property
    def scheduler(self) -> object | None:
        """The learning-rate scheduler, if any."""
        return self._training.schedule.scheduler

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
    def markers(self) -> tuple[Marker, ...]:
        """Changes of modes, learning rate and model, by step."""
        return self._training.board.markers

    @property
    def carried(self) -> tuple[CarryRow, ...]:
        """What became of every parameter in the last hot swap."""
        return self._training.carried

    @property
    def step_count(self) -> int:
        """Steps done."""
        return self._training.step_count

    @property
    def epoch(self) -> int:
        """The epoch under way, from 1; the last one when the run is over, 0 before any step."""
        cursor = self._training.cursor
        under_way = cursor.index > 0 or self.status == "training"
        return min(cursor.epoch + under_way, self._runner.plan.until_epoch or cursor.epoch + 1)

    @property
    def steps_per_epoch(self) -> int:
        """0 while unknown."""
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

    def summary(self) -> str:
        """A few readable lines."""
        total = f" of {self.total_steps:,}" if self.total_steps else ""
        lines = [f"Experiment {self.name}: {self.status}, step {self.step_count:,}{total}"]
        for name in ("train/loss", "val/loss", "val/accuracy"):
            last = self.scalars.last(name)
            if last and math.isfinite(last[0]):
                lines.append(f"  {name} {last[0]:.4g}")
        lines.append(f"  modes {self.modes}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(" ".join(line[:300].splitlines()) for line in lines)

    def __repr__(self) -> str:
        return self.summary()
