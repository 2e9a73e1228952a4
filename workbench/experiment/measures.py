"""What is logged of a step: the loss always, all else on a sample of the steps.

Accuracy, gradient norms, learning rate and throughput cost some 50 us together, as much as a third
of a tiny model's step. They are logged for at most `PER_SECOND` steps a second: every step of a
model that takes longer than that, a sample of the steps of a fast one.

Gradients are measured after the step, except where they are clipped: then before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from workbench.experiment.flow import FlowLog
from workbench.experiment.losses import counted
from workbench.experiment.step import StepResult

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment
    from workbench.experiment.scalars import ScalarLog
    from workbench.experiment.training import Training
    from workbench.modes.scaler import GradientScaler

PER_SECOND = 10
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
        self._next = 0.0
        self._sampled = False
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
        self._sampled = not training.rehearsing and time.perf_counter() >= self._next
        if self._sampled:
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
        shape = result.logits.shape  # its first entry costs a third of what `len` of a tensor does
        self._samples += shape[0] if shape else 1
        if not result.applied:
            self._skipped(training)
        now = time.perf_counter()
        if self._sampled if training.clip_grad_norm is not None else now >= self._next:
            self._next = now + 1 / PER_SECOND
            self._log_details(training, result, now)

    def count(self, num_samples: int) -> None:
        """A step has gone through that `log` is not told of: for the throughput."""
        self._steps += 1
        self._samples += num_samples

    def num_samples(self, result: StepResult) -> int:
        """Samples in the step's batch."""
        return len(result.logits) if result.logits.ndim else 1

    def _log_details(self, training: Training, result: StepResult, now: float) -> None:
        step = training.step_count
        self.measure_speed(now)
        if self.samples_per_s is not None:
            self._scalars.add("train/samples_per_s", step, self.samples_per_s)
        accuracy = accuracy_of(result.logits.detach(), result.targets, training.loss.ignore_index)
        if accuracy is not None:
            self._scalars.add("train/accuracy", step, accuracy)
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


def on_sample(experiment: Experiment, reader: Callable[[int], None]) -> Callable[[], None]:
    """Call ``reader`` with the number of every step whose details are logged; returns what ends it.

    It runs on the training thread between two steps, at most `PER_SECOND` times a second: it must
    be quick, read nothing off the device and raise nothing.
    """
    readers = experiment._training.measures.readers  # pyright: ignore[reportPrivateUsage] - the same package
    readers.append(reader)

    def remove() -> None:
        if reader in readers:
            readers.remove(reader)

    return remove


def accuracy_of(logits: torch.Tensor, targets: Any, ignore_index: int) -> torch.Tensor | None:
    """Share of right answers as a device scalar, None where the notion does not apply."""
    found = count_right(logits, targets, ignore_index)
    return None if found is None else found[0] / found[1]


def count_right(
    logits: torch.Tensor, targets: Any, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor | int] | None:
    """(right answers, answers) without labels of ``ignore_index``; reads nothing off the device."""
    right = correct(logits, targets)
    if right is None:
        return None
    if targets.is_floating_point() or targets.shape != right.shape:
        return right.sum(), right.numel()
    labelled = counted(targets, ignore_index)
    return (right & labelled).sum(), labelled.sum()


def correct(logits: torch.Tensor, targets: Any) -> torch.Tensor | None:
    """Which answers are right, as booleans, None where the notion does not apply.

    The largest logit is the answer; a single logit answers yes when it is positive, and so does
    each logit of a multi-label target.
    """
    if not isinstance(targets, torch.Tensor):
        return None
    shape, wanted = tuple(logits.shape), tuple(targets.shape)
    if len(shape) >= 2 and shape[1] > 1 and wanted == (shape[0], *shape[2:]):
        return logits.argmax(1) == targets
    if len(shape) >= 3 and shape[-1] > 1 and wanted == shape[:-1]:  # classes last, as for tokens
        return logits.argmax(-1) == targets
    if logits.numel() == targets.numel():
        return (logits > 0) == (targets.reshape(logits.shape) > 0.5)
    return None


def _blend(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)
