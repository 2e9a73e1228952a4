"""What is logged of a step: the loss always, all else on a sample of the steps.

Gradient norms, learning rate and throughput cost some 50 us together, as much as a third of a tiny
model's step. They are logged for the first `ALL_UNTIL` steps, for every `EVERY`-th up to
`OFTEN_UNTIL` and for every `RARELY`-th from then on: by number, so that equal runs log equal steps.

``train/accuracy`` is of every sample of the epoch so far
(`workbench.experiment.loop.epoch_accuracy`); the point of an epoch's last step is the whole
epoch's.

Gradients are measured after the step, except where they are clipped: then before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from workbench.experiment.loop.epoch_accuracy import EpochAccuracy
from workbench.experiment.loop.step import StepResult
from workbench.gradient_flow.log import FlowLog

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment
    from workbench.experiment.loop.scalars import ScalarLog
    from workbench.experiment.recipe.targets import AnswerReader
    from workbench.experiment.training import Training
    from workbench.modes.precision.scaler import GradientScaler

ALL_UNTIL = 100
"""The first steps of a training, which are all sampled."""
EVERY, OFTEN_UNTIL = 10, 1000
"""Of the steps after these one in so many, up to this one."""
RARELY = 50
"""Of later steps, one in so many."""
_SPEED_S = 0.5
"""Throughput is taken at least so often, where steps do not last longer."""
_MEMORY_S = 2.0
"""Throughput is averaged over about so many seconds."""


class Measures:
    """Logs a step's scalars and keeps the throughput."""

    def __init__(self, scalars: ScalarLog) -> None:
        self._scalars = scalars
        self.flow = FlowLog()
        """Gradient norm of every module, over the sampled steps."""
        self.readers: list[Callable[[int], None]] = []
        """What else is to be logged of a sampled step; called with its number, see `on_sample`."""
        self.samples_per_s: float | None = None
        self.steps_per_s: float | None = None
        self.accuracy = EpochAccuracy()
        """Of the epoch under way."""
        self._logged_at = -1
        self.restart()

    def restart(self) -> None:
        """A stretch of steps begins: time that passed since the last one is not training time."""
        self._at: float | None = None
        self._steps = 0
        self._samples = 0

    def forget_speed(self) -> None:
        """What comes next is computed by others: the throughput so far says nothing of it."""
        self.samples_per_s = self.steps_per_s = None
        self.restart()

    def leave_out(self, seconds: float) -> None:
        """So much of the time since the last step was spent on something else."""
        if self._at is not None:
            self._at += seconds

    def before_clip(self, training: Training) -> None:
        """Gradients are about to be clipped: measure them now if the step is to be sampled."""
        if not training.rehearsing and is_sampled(training.step_count + 1):
            self._measure_gradients(training, training.step_count + 1)

    def refused(self, training: Training) -> None:
        """A step was not applied because something is not finite: its gradients tell where.

        Not where they were clipped since: one that is not finite then has spoilt all others.
        """
        clipped = training.clip_grad_norm is not None
        if not clipped and any(p.grad is not None for p in training.parameters):
            self._measure_gradients(training, training.step_count + 1)

    def log(self, training: Training, result: StepResult) -> None:
        """Log the step that has just gone through."""
        self._scalars.add("train/loss", training.step_count, result.loss)
        self._steps += 1
        self._samples += self.num_samples(result)
        if not result.applied:
            self._skipped(training)
        reader = training.loss.answers
        if reader.reads and isinstance(result.targets, torch.Tensor):
            self._count_answers(training, reader, result.logits.detach(), result.targets)
        now = time.perf_counter()
        if is_sampled(training.step_count):
            self._log_details(training, result, now)
        elif self._at is None or now - self._at > _SPEED_S:
            self.measure_speed(now)  # a panel shows it: fifty slow steps may take minutes

    def _count_answers(
        self,
        training: Training,
        reader: AnswerReader,
        outputs: torch.Tensor,
        labels: torch.Tensor,
    ) -> None:
        cursor = training.cursor
        if not cursor.source.is_fresh:
            labels = labels.clone()
        if training.modeset.compiled and outputs.is_cuda:
            outputs = outputs.clone()  # a CUDA graph writes the next step's over them
        self.accuracy.add(cursor.epoch, reader, outputs, labels)

    def log_accuracy(self, step: int) -> None:
        """Log the accuracy of the epoch so far, once a step."""
        value = self.accuracy.value() if step != self._logged_at else None
        if value is not None:
            self._logged_at = step
            self._scalars.add("train/accuracy", step, value)

    def count(self, num_samples: int) -> None:
        """A step has gone through that `log` is not told of: for the throughput."""
        self._steps += 1
        self._samples += num_samples

    def num_samples(self, result: StepResult) -> int:
        """Samples in the step's batch."""
        shape = result.logits.shape  # its first entry costs a third of what `len` of a tensor does
        return shape[0] if shape else 1

    def _log_details(self, training: Training, result: StepResult, now: float) -> None:
        step = training.step_count
        training.look_at_settings()
        self.measure_speed(now)
        if self.samples_per_s is not None:
            self._scalars.add("train/samples_per_s", step, self.samples_per_s)
        self.log_accuracy(step)
        norm = result.gradient_norm
        if norm is None:
            norm = self._measure_gradients(training, step)
        if norm is not None:
            self._scalars.add("train/gradient_norm", step, norm)
        rate = training.learning_rate
        if rate is not None:
            self._scalars.add("train/learning_rate", step, rate)
        if training.scaler is not None and result.applied:  # else it has been logged
            self._log_scaler(training.scaler, step)
        for reader in tuple(self.readers):
            reader(step)

    def _skipped(self, training: Training) -> None:
        """Gradients overflowed in the step that has just gone through."""
        if training.scaler is not None:
            training.scaler.happened_at(training.step_count)
            self._log_scaler(training.scaler, training.step_count)

    def _log_scaler(self, scaler: GradientScaler, step: int) -> None:
        for name, value in scaler.scalars().items():
            self._scalars.add(name, step, value)

    def _measure_gradients(self, training: Training, step: int) -> torch.Tensor | None:
        return self.flow.take(training.model, training.parameters, step)

    def measure_speed(self, now: float) -> None:
        """Take the steps since the last time into the throughput; ``now`` is clock time."""
        if self._at is not None and now > self._at:
            seconds = now - self._at
            weight = min(1.0, seconds / _MEMORY_S)
            self.samples_per_s = _blend(self.samples_per_s, self._samples / seconds, weight)
            self.steps_per_s = _blend(self.steps_per_s, self._steps / seconds, weight)
        self._at, self._steps, self._samples = now, 0, 0


def is_sampled(step: int) -> bool:
    """Whether all is logged of this step, counted from 1."""
    return step <= ALL_UNTIL or step % (EVERY if step <= OFTEN_UNTIL else RARELY) == 0


def on_sample(experiment: Experiment, reader: Callable[[int], None]) -> Callable[[], None]:
    """Call ``reader`` with the number of every step whose details are logged; returns what ends it.

    It runs on the training thread between two steps: it must be quick, read nothing off the device
    and raise nothing.
    """
    readers = experiment._training.measures.readers  # pyright: ignore[reportPrivateUsage] - the same package
    readers.append(reader)

    def remove() -> None:
        if reader in readers:
            readers.remove(reader)

    return remove


def _blend(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)
