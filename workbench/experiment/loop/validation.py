"""Validation: loss, accuracy and confusion matrix over a whole data source.

The loss is that of the whole set, however it is divided into batches: what a mean divides by is
known for torch's own losses (`workbench.experiment.recipe.loss_kinds`), so their batches add up to
it. For a function of the user's own nothing of the kind is known
(`workbench.experiment.recipe.whole_set_loss`).
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from workbench.experiment.data.data import DataError, DataSource, batch_size_of, split, to_device
from workbench.experiment.loop.step import call
from workbench.experiment.recipe.losses import check_loss, logits_of
from workbench.experiment.recipe.whole_set_loss import WholeSet
from workbench.processes import computing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from workbench.experiment.recipe.loss_kinds import KnownLoss
    from workbench.experiment.training import Training

MAX_CLASSES = 1000
"""Maximum number of classes for a confusion matrix: a larger one would not be readable."""
_NOTHING = nullcontext()


@dataclass(frozen=True)
class Validation:
    """Result of one pass over the validation data."""

    loss: float
    """Loss of the whole set."""
    accuracy: float | None
    confusion: torch.Tensor | None
    """``[classes, classes]`` int64 on CPU, rows = true class."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Other parts of the loss by name, each the mean over batches, weighted by samples."""


def validate(training: Training, source: DataSource) -> Validation:
    """Evaluate the model in eval mode, without gradients, under the training's modes.

    Train mode is restored afterwards, whatever was raised (`workbench.experiment.loop.train_mode`).

    Raises:
        DataError: the source gave no batch.
        Exception: whatever the user's code raised; the flags are restored all the same.
    """
    with training.train_mode.evaluating(training.optimizer):
        return found_over(training, source)


@torch.no_grad()
def found_over(training: Training, source: DataSource) -> Validation:
    """`validate` in the current train or eval modes of the modules."""
    tally = Tally(training)
    for batch in source.batches(0):
        gpu = training.gpu
        with _NOTHING if gpu is None else gpu.at_work("validation", batch):
            evaluate(training, batch, tally)
    if tally.num_samples == 0:
        raise DataError(f"val gave no batch ({source.name}); give at least one, or leave val out")
    return tally.result()


def validated(training: Training, source: DataSource) -> Validation:
    """`validate` at the end of an epoch: logged, and timed separately.

    What it draws must not change the training, so random states are restored; unless the order of
    samples is a loader's own: then random numbers are those of a plain loop, which draws for both
    in turn.

    Raises:
        Exception: as `validate`; ``training.validating`` then stays true until one goes through.
    """
    training.validating, started = True, time.perf_counter()
    training.random.save()
    try:
        found = training.validate(training, source)
    finally:
        if not training.cursor.source.draws:
            training.random.restore()
    averaged = None
    if training.ema is not None and training.ema.num_updates:
        averaged = training.ema.validated(training, source)
    training.validating = False
    training.last_validation = found
    training.scalars.add("val/loss", training.step_count, found.loss)
    for name, value in found.parts.items():
        training.scalars.add(f"val/{name}", training.step_count, value)
    if found.accuracy is not None:
        training.scalars.add("val/accuracy", training.step_count, found.accuracy)
        training.best_accuracy = max(found.accuracy, training.best_accuracy or 0.0)
    if averaged is not None:
        training.scalars.add("val/ema_loss", training.step_count, averaged.loss)
        if averaged.accuracy is not None:
            training.scalars.add("val/ema_accuracy", training.step_count, averaged.accuracy)
    training.measures.leave_out(time.perf_counter() - started)
    return found


@computing
def evaluate(training: Training, batch: Any, tally: Tally) -> None:
    """Evaluate one batch and add it to the results so far."""
    inputs, targets = split(batch)
    inputs, targets = (to_device(part, training.device) for part in (inputs, targets))
    loss_of = training.loss
    with training.forward_context():
        logits = given = logits_of(call(training.model, inputs))
        loss_of.choose(logits, targets)
        labels = targets
        if not loss_of.known.per:  # it may write into what it is given
            given = logits.clone()
            labels = targets.clone() if isinstance(targets, torch.Tensor) else targets
        tally.begin_batch()
        loss = loss_of(given, targets)
        tally.end_batch()
    check_loss(loss, trains=False)
    loss_of.answers.decide(logits, labels)
    tally.add(loss.reshape(()), inputs, logits, labels)


class Tally:
    """Sums on the device over the batches of a source; reads them once at the end.

    Args:
        training: the training whose loss and device are used.
    """

    def __init__(self, training: Training) -> None:
        self.num_samples = 0
        self._loss_of = training.loss
        device = training.device
        real = torch.float32 if device.type == "mps" else torch.float64
        self._loss = torch.zeros((), device=device, dtype=real)
        self._divisor = torch.zeros((), device=device, dtype=real)
        self._right = torch.zeros((), device=device, dtype=torch.int64)
        self._answers = torch.zeros((), device=device, dtype=torch.int64)
        self._beyond = torch.zeros((), device=device, dtype=torch.int64)
        """How often labels were not a column of the outputs, which then are not scores of them."""
        self._confusion: torch.Tensor | None = None
        self._parts: dict[str, torch.Tensor] = {}
        """Sum of every other part of the loss, weighted by samples."""
        self._part_samples: dict[str, int] = {}
        """Number of samples of the batches that had it."""
        self._whole = WholeSet(training)
        """For a loss that is not known to add up."""

    @property
    def _known(self) -> KnownLoss:
        return self._loss_of.known

    def begin_batch(self) -> None:
        """Called right before the loss of a batch is computed."""
        if not self._known.per:
            self._whole.before_batch()

    def end_batch(self) -> None:
        """Called right after that."""
        if not self._known.per:
            self._whole.after_batch()

    def add(self, loss: torch.Tensor, inputs: Any, logits: torch.Tensor, targets: Any) -> None:
        """Count a batch."""
        count = batch_size_of(inputs, targets)
        if count < 0:  # inputs of a type of their own
            count = batch_size_of(logits, targets)
        self.num_samples += max(count, 1)
        self._add_loss(loss, logits, targets, max(count, 1))
        for name, value in self._loss_of.parts.items():
            before = self._parts.get(name, 0.0)
            self._parts[name] = before + value.to(self._loss.dtype) * max(count, 1)
            self._part_samples[name] = self._part_samples.get(name, 0) + max(count, 1)
        if not self._known.per:
            self._whole.add(logits, targets, max(count, 1))
        found = self._loss_of.answers.read(logits, targets)
        if found is None:
            return
        right, answers = found.tally()
        self._right += right
        self._answers += answers
        if found.beyond is not None:
            self._beyond += found.beyond
        if logits.ndim == 2 and 1 < logits.shape[1] <= MAX_CLASSES and found.given.ndim == 1:
            self._count(found.given, found.wanted, found.counts, logits.shape[1])

    def _add_loss(self, loss: torch.Tensor, logits: torch.Tensor, targets: Any, count: int) -> None:
        known = self._known
        if known.per and known.reduction == "sum":
            self._loss += loss
            self._divisor.fill_(1)
            return
        divisor = known.divisor(logits, targets)
        weight = torch.as_tensor(
            count if divisor is None else divisor, device=self._loss.device, dtype=self._loss.dtype
        )
        # a mean over no label is nan, and counts for nothing
        self._loss += torch.where(weight > 0, loss.to(self._loss.dtype) * weight, 0.0)
        self._divisor += weight

    def _count(
        self,
        given: torch.Tensor,
        wanted: torch.Tensor,
        counts: torch.Tensor | None,
        classes: int,
    ) -> None:
        known = (wanted >= 0) & (wanted < classes)
        known = known if counts is None else known & counts
        pairs = wanted * classes + given
        cells = torch.bincount(pairs[known], minlength=classes * classes)
        self._confusion = cells if self._confusion is None else self._confusion + cells

    def pool(
        self,
        summed: Callable[[torch.Tensor], torch.Tensor],
        largest: Callable[[int], int],
        gathered: Callable[[Any], list[Any]],
    ) -> None:
        """Combine the tallies of all processes that count.

        Args:
            summed: returns the sum of a tensor over all of them; every process calls it.
            largest: returns the largest of a number over them; every process calls it.
            gathered: returns what each of them has; every process calls it.
        """
        counted_cells = largest(0 if self._confusion is None else len(self._confusion))
        if counted_cells and self._confusion is None:
            self._confusion = self._right.new_zeros(counted_cells)
        if self._confusion is not None:
            self._confusion = summed(self._confusion)
        self._loss, self._right = summed(self._loss), summed(self._right)
        self._divisor, self._beyond = summed(self._divisor), summed(self._beyond)
        if self._known.per and self._known.reduction == "sum":
            self._divisor.fill_(1)
        if not self._known.per:
            self._whole.pool(gathered)
            self._pool_parts(gathered)
        samples = self._answers.new_tensor(self.num_samples)
        self._answers, self.num_samples = summed(self._answers), int(summed(samples))

    def _pool_parts(self, gathered: Callable[[Any], list[Any]]) -> None:
        own = {
            name: (float(value), self._part_samples[name]) for name, value in self._parts.items()
        }
        everyones: list[dict[str, tuple[float, int]]] = gathered(own)
        for name in dict.fromkeys(name for one in everyones for name in one):
            found = [one[name] for one in everyones if name in one]
            self._parts[name] = self._loss.new_tensor(sum(value for value, _ in found))
            self._part_samples[name] = sum(count for _, count in found)

    def result(self) -> Validation:
        """Return the result; reads the sums from the device."""
        divisor = float(self._divisor)
        loss = float(self._loss) / divisor if divisor else math.nan
        if not self._known.per and (whole := self._whole.loss()) is not None:
            loss = whole
        answers = self._loss_of.answers
        if self._loss_of.scope.takes_scores is False or int(self._beyond):
            answers.read_nothing()  # as the labels, or the check of the whole set, have shown
        parts = {
            name: float(value) / self._part_samples[name] for name, value in self._parts.items()
        }
        if not answers.reads or self._whole.hides_accuracy:
            return Validation(loss, None, None, parts)
        count, confusion = int(self._answers), self._confusion
        if confusion is not None:
            side = int(len(confusion) ** 0.5 + 0.5)
            confusion = confusion.reshape(side, side).cpu()
        return Validation(loss, int(self._right) / count if count else None, confusion, parts)
