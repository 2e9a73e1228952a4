"""Validation: loss, accuracy and confusion matrix over a whole data source."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from workbench.experiment.data import DataError, DataSource, split, to_device
from workbench.experiment.losses import counted, logits_of
from workbench.experiment.measures import count_right
from workbench.experiment.step import call

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from workbench.experiment.training import Training

MAX_CLASSES = 1000
"""No confusion matrix past this: nobody could read it."""
_NOTHING = nullcontext()


@dataclass(frozen=True)
class Validation:
    """What one pass over the validation data found."""

    loss: float
    """Mean over samples."""
    accuracy: float | None
    confusion: torch.Tensor | None
    """``[classes, classes]`` int64 on CPU, rows = true class."""


def validate(training: Training, source: DataSource) -> Validation:
    """Evaluate the model in eval mode, without gradients, under the training's modes.

    Every module's own train or eval flag is put back afterwards.

    Raises:
        DataError: the source gave no batch.
        Exception: whatever the user's code raised; the flags are put back all the same.
    """
    tally = Tally(training.device, training.loss.ignore_index)
    with evaluating(training.model), torch.no_grad():
        for batch in source.batches(0):
            card = training.card
            with _NOTHING if card is None else card.at_work("validation", batch):
                evaluate(training, batch, tally)
    if tally.num_samples == 0:
        raise DataError(f"val gave no batch ({source.name}); give at least one, or leave val out")
    return tally.result()


def validated(training: Training, source: DataSource) -> Validation:
    """`validate` as the end of an epoch does it: logged, timed apart, drawing nothing.

    Raises:
        Exception: as `validate`; ``training.validating`` then stays true until one goes through.
    """
    training.validating, started = True, time.perf_counter()
    training.random.save()  # what is drawn in validation must not change the training
    try:
        found = training.validate(training, source)
    finally:
        training.random.restore()
    training.validating = False
    training.last_validation = found
    training.scalars.add("val/loss", training.step_count, found.loss)
    if found.accuracy is not None:
        training.scalars.add("val/accuracy", training.step_count, found.accuracy)
        training.best_accuracy = max(found.accuracy, training.best_accuracy or 0.0)
    training.measures.leave_out(time.perf_counter() - started)
    return found


def evaluate(training: Training, batch: Any, tally: Tally) -> None:
    """Add one batch to what was found so far."""
    inputs, targets = split(batch)
    inputs, targets = (to_device(part, training.device) for part in (inputs, targets))
    with training.modeset.forward_context():
        logits = logits_of(call(training.model, inputs))
        loss = training.loss(logits, targets)
    tally.add(loss, logits, targets)


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Eval mode, and back to each module's own flag."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


class Tally:
    """Sums on the device; reads them once at the end."""

    def __init__(self, device: torch.device, ignore_index: int) -> None:
        self.num_samples = 0
        self._ignore_index = ignore_index
        self._loss = torch.zeros((), device=device, dtype=torch.float32)
        self._right = torch.zeros((), device=device, dtype=torch.int64)
        self._answers = torch.zeros((), device=device, dtype=torch.int64)
        self._confusion: torch.Tensor | None = None

    def add(self, loss: torch.Tensor, logits: torch.Tensor, targets: Any) -> None:
        """Count a batch."""
        count = len(logits) if logits.ndim else 1
        self.num_samples += count
        self._loss += loss.float() * count
        found = count_right(logits, targets, self._ignore_index)
        if found is not None:
            self._right += found[0]
            self._answers += found[1]
        if logits.ndim == 2 and 1 < logits.shape[1] <= MAX_CLASSES:
            self._count(logits, targets)

    def _count(self, logits: torch.Tensor, targets: Any) -> None:
        if not isinstance(targets, torch.Tensor) or targets.ndim != 1:
            return
        classes = logits.shape[1]
        known = (targets >= 0) & (targets < classes) & counted(targets, self._ignore_index)
        pairs = targets.long() * classes + logits.argmax(1)
        counts = torch.bincount(pairs[known], minlength=classes * classes)
        self._confusion = counts if self._confusion is None else self._confusion + counts

    def pool(
        self, summed: Callable[[torch.Tensor], torch.Tensor], largest: Callable[[int], int]
    ) -> None:
        """Make it the tally of all processes that count.

        Args:
            summed: gives the sum of a tensor over all of them; every one calls it.
            largest: gives the largest of a number; every one calls it.
        """
        counted_cells = largest(0 if self._confusion is None else len(self._confusion))
        if counted_cells and self._confusion is None:
            self._confusion = self._right.new_zeros(counted_cells)
        if self._confusion is not None:
            self._confusion = summed(self._confusion)
        self._loss, self._right = summed(self._loss), summed(self._right)
        samples = self._answers.new_tensor(self.num_samples)
        self._answers, self.num_samples = summed(self._answers), int(summed(samples))

    def result(self) -> Validation:
        """Read the sums off the device."""
        confusion = self._confusion
        if confusion is not None:
            side = int(len(confusion) ** 0.5 + 0.5)
            confusion = confusion.reshape(side, side).cpu()
        answers = int(self._answers)
        return Validation(
            loss=float(self._loss) / self.num_samples,
            accuracy=int(self._right) / answers if answers else None,
            confusion=confusion,
        )
