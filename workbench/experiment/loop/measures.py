"""What is logged of a step: the loss always, everything else for a sample of the steps.

Gradient norms, learning rate and throughput cost some 50 us together, as much as a third of a tiny
model's step. They are logged for the first `ALL_UNTIL` steps, for every `EVERY`-th up to
`OFTEN_UNTIL` and for every `RARELY`-th from then on: by number, so that equal runs log equal steps.
``train/accuracy`` covers every sample of the epoch so far
(`workbench.experiment.loop.epoch_accuracy`); its point at an epoch's last step is that of the whole
epoch.

Gradients are measured after the step, or before clipping if they are clipped.
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
"""Number of first steps of a training, which are all sampled."""
EVERY, OFTEN_UNTIL = 10, 1000
"""After these, the interval between sampled steps, and the last step that it applies to."""
RARELY = 50
"""Interval between sampled steps after that."""
_SPEED_S = 0.5
"""Throughput is measured at least this often, unless a step takes longer."""
_MEMORY_S = 2.0
"""Throughput is averaged over about this many seconds."""


class Measures:
    """Logs the scalars of a step and tracks the throughput."""

    def __init__(self, scalars: ScalarLog) -> None:
        self._scalars = scalars
        self.flow = FlowLog()
        """Gradient norm of every module, over the sampled steps."""
        self.readers: list[Callable[[int], None]] = []
        """Called with the number of a sampled step, to log more of it; see `on_sample`."""
        self.samples_per_s: float | None = None
        self.steps_per_s: float | None = None
        self.accuracy = EpochAccuracy()
        """Accuracy of the epoch in progress."""
        self._logged_at = -1
        self.restart()

    def restart(self) -> None:
        """Begin a series of steps: the time since the last step is not training time."""
        self._at: float | None = None
        self._steps = 0
        self._samples = 0

    def forget_speed(self) -> None:
        """Forget the throughput: it says nothing about what others compute next."""
        self.samples_per_s = self.steps_per_s = None
        self.restart()

    def leave_out(self, seconds: float) -> None:
        """Exclude so many seconds since the last step, which were spent on something else."""
        if self._at is not None:
            self._at += seconds

    def before_clip(self, training: Training) -> None:
        """Before gradients are clipped: measure them if the step is to be sampled."""
        if not training.rehearsing and is_sampled(training.step_count + 1):
            self._measure_gradients(training, training.step_count + 1)

    def refused(self, training: Training) -> None:
        """Measure the gradients of a step that was refused as not finite: they show where.

        Not if they have been clipped since: a value that is not finite has then spoilt all others.
        """
        clipped = training.clip_grad_norm is not None
        if not clipped and any(p.grad is not None for p in training.parameters):
            self._measure_gradients(training, training.step_count + 1)

    def log(self, training: Training, result: StepResult) -> None:
        """Log the step that has just gone through."""
        self._scalars.add("train/loss", training.step_count, result.loss)
        for name, value in training.loss.parts.items():
            self._scalars.add(f"train/{name}", training.step_count, value)
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
            outputs = outputs.clone()  # a CUDA graph overwrites them in the next step
        self.accuracy.add(cursor.epoch, reader, outputs, labels)

    def log_accuracy(self, step: int) -> None:
        """Log the accuracy of the epoch so far, once a step."""
        value = self.accuracy.value() if step != self._logged_at else None
        if value is not None:
            self._logged_at = step
            self._scalars.add("train/accuracy", step, value)

    def count(self, num_samples: int) -> None:
        """Count a step that `log` is not called for: for the throughput."""
        self._steps += 1
        self._samples += num_samples

    def num_samples(self, result: StepResult) -> int:
        """Number of samples in the batch of the step."""
        shape = result.logits.shape  # its first entry costs a third of what `len` of a tensor does
        return shape[0] if shape else 1

    def _log_details(self, training: Training, result: StepResult, now: float) -> None:
        step = training.step_count
        training.check_settings()
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
        """Log that gradients overflowed in the step that has just gone through."""
        if training.scaler is not None:
            training.scaler.happened_at(training.step_count)
            self._log_scaler(training.scaler, training.step_count)

    def _log_scaler(self, scaler: GradientScaler, step: int) -> None:
        for name, value in scaler.scalars().items():
            self._scalars.add(name, step, value)

    def _measure_gradients(self, training: Training, step: int) -> torch.Tensor | None:
        return self.flow.take(training.model, training.parameters, step)

    def measure_speed(self, now: float) -> None:
        """Include the steps since the last call in the throughput; ``now`` is clock time."""
        if self._at is not None and now > self._at:
            seconds = now - self._at
            weight = min(1.0, seconds / _MEMORY_S)
            self.samples_per_s = _blend(self.samples_per_s, self._samples / seconds, weight)
            self.steps_per_s = _blend(self.steps_per_s, self._steps / seconds, weight)
        self._at, self._steps, self._samples = now, 0, 0


def is_sampled(step: int) -> bool:
    """Whether everything is logged of this step, counted from 1."""
    return step <= ALL_UNTIL or step % (EVERY if step <= OFTEN_UNTIL else RARELY) == 0


def on_sample(experiment: Experiment, reader: Callable[[int], None]) -> Callable[[], None]:
    """Call ``reader`` with the number of every step whose details are logged.

    It runs on the training thread between two steps: it must be quick, and must neither read from
    the device nor raise.

    Returns:
        A function that removes the reader.
    """
    readers = experiment._training.measures.readers  # pyright: ignore[reportPrivateUsage] - the same package
    readers.append(reader)

    def remove() -> None:
        if reader in readers:
            readers.remove(reader)

    return remove


def _blend(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)
