"""Validation: loss, accuracy and confusion matrix over a whole data source.

The loss is that of the whole set, however it is cut into batches: what a mean divides by is known
for torch's own losses (`workbench.experiment.loss_kinds`), so their batches add up to it. For a
function of the user's own nothing of the kind is known, and it is computed once for all outputs and
labels together, as far as they fit into `MOST_BYTES` and are of one shape. One that compares the
samples of a batch with each other would be another loss then (`workbench.experiment.loss_scope`
finds that out, once), and one that keeps something from call to call is called for nothing but the
batches. In all these cases the loss is the mean of the batches, weighed by samples, and a note says
so.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from workbench.experiment.data import DataError, DataSource, batch_size_of, split, to_device
from workbench.experiment.loss_scope import LossMarks, compares_samples, means_columns
from workbench.experiment.losses import logits_of
from workbench.experiment.module_state import ModuleState
from workbench.experiment.rng import RandomState
from workbench.experiment.step import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.experiment.loss_kinds import KnownLoss
    from workbench.experiment.training import Training

MAX_CLASSES = 1000
"""No confusion matrix past this: nobody could read it."""
MOST_BYTES = 256 * 2**20
"""Outputs and labels of so many bytes are kept for a loss that is computed for all at once."""
_NOTHING = nullcontext()


@dataclass(frozen=True)
class Validation:
    """What one pass over the validation data found."""

    loss: float
    """Of the whole set."""
    accuracy: float | None
    confusion: torch.Tensor | None
    """``[classes, classes]`` int64 on CPU, rows = true class."""


def validate(training: Training, source: DataSource) -> Validation:
    """Evaluate the model in eval mode, without gradients, under the training's modes.

    Train mode comes back afterwards, whatever was raised (`workbench.experiment.train_mode`).

    Raises:
        DataError: the source gave no batch.
        Exception: whatever the user's code raised; the flags are put back all the same.
    """
    with training.train_mode.evaluating(training.optimizer):
        return found_over(training, source)


@torch.no_grad()
def found_over(training: Training, source: DataSource) -> Validation:
    """`validate` in the modes in which modules are."""
    tally = Tally(training)
    for batch in source.batches(0):
        card = training.card
        with _NOTHING if card is None else card.at_work("validation", batch):
            evaluate(training, batch, tally)
    if tally.num_samples == 0:
        raise DataError(f"val gave no batch ({source.name}); give at least one, or leave val out")
    return tally.result()


def validated(training: Training, source: DataSource) -> Validation:
    """`validate` as the end of an epoch does it: logged, timed apart.

    What it draws must not change the training, and is put back; unless the order of samples is a
    loader's own: then random numbers are a plain loop's, which draws for both in turn.

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
    with training.forward_context():
        logits = logits_of(call(training.model, inputs))
        training.loss.choose(logits, targets)
        tally.begin_batch()
        loss = training.loss(logits, targets)
    training.loss.answers.decide(logits, targets)
    tally.add(loss, logits, targets)


class Tally:
    """Sums on the device over the batches of a source; reads them once at the end.

    Args:
        training: whose loss and whose device it is.
    """

    def __init__(self, training: Training) -> None:
        self.num_samples = 0
        self._training, self._loss_of = training, training.loss
        device = training.device
        real = torch.float32 if device.type == "mps" else torch.float64
        self._loss = torch.zeros((), device=device, dtype=real)
        self._divisor = torch.zeros((), device=device, dtype=real)
        self._right = torch.zeros((), device=device, dtype=torch.int64)
        self._answers = torch.zeros((), device=device, dtype=torch.int64)
        self._confusion: torch.Tensor | None = None
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] | None = []
        """Outputs and labels for a loss that is known as a whole only; None: not kept any more."""
        self._kept_bytes = 0
        self._largest = 0
        self._marks: LossMarks | None = None
        self._keeps_state = False

    def begin_batch(self) -> None:
        """Before the loss of a batch is computed: see later whether it keeps something."""
        if self._marks is None and self._loss_of.function is not None and not self._known.per:
            self._marks = LossMarks(self._loss_of.function)

    def _keeps_something(self) -> bool:
        """Whether the loss has kept something from a call for the next."""
        self._keeps_state |= self._marks is not None and self._marks.changed()
        return self._keeps_state

    @property
    def _known(self) -> KnownLoss:
        return self._loss_of.known

    def add(self, loss: torch.Tensor, logits: torch.Tensor, targets: Any) -> None:
        """Count a batch."""
        count = max(batch_size_of(logits, targets), 1)  # outputs may have their sequence first
        self.num_samples += count
        self._largest = max(self._largest, count)
        self._add_loss(loss, logits, targets, count)
        found = self._loss_of.answers.read(logits, targets)
        if found is None:
            return
        right, answers = found.tally()
        self._right += right
        self._answers += answers
        if logits.ndim == 2 and 1 < logits.shape[1] <= MAX_CLASSES and found.given.ndim == 1:
            self._count(found.given, found.wanted, found.counts, logits.shape[1])

    def _add_loss(self, loss: torch.Tensor, logits: torch.Tensor, targets: Any, count: int) -> None:
        known = self._known
        if known.per and known.reduction == "sum":
            self._loss += loss
            self._divisor.fill_(1)
            return
        divisor = known.divisor(logits, targets)
        if divisor is None:
            self._keep(logits, targets)
            divisor = count
        weight = torch.as_tensor(divisor, device=self._loss.device, dtype=self._loss.dtype)
        # a mean over no label is nan, and stands for nothing
        self._loss += torch.where(weight > 0, loss.to(self._loss.dtype) * weight, 0.0)
        self._divisor += weight

    def _keep(self, logits: torch.Tensor, targets: Any) -> None:
        """Keep a batch for a loss that is not known to add up."""
        if self._kept is None or self._loss_of.compares_samples:
            return
        if isinstance(targets, torch.Tensor) and targets.shape[:1] == logits.shape[:1]:
            self._kept_bytes += logits.nbytes + targets.nbytes
            if self._kept_bytes <= MOST_BYTES:
                # a loader of the user's own, or a CUDA graph, may write the next batch over them
                self._kept.append((logits.clone(), targets.clone()))
                return
        self._kept = None

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
        """Make it the tally of all processes that count.

        Args:
            summed: gives the sum of a tensor over all of them; every one calls it.
            largest: gives the largest of a number; every one calls it.
            gathered: gives what each of them has; every one calls it.
        """
        counted_cells = largest(0 if self._confusion is None else len(self._confusion))
        if counted_cells and self._confusion is None:
            self._confusion = self._right.new_zeros(counted_cells)
        if self._confusion is not None:
            self._confusion = summed(self._confusion)
        self._loss, self._right = summed(self._loss), summed(self._right)
        self._divisor = summed(self._divisor)
        if self._known.per and self._known.reduction == "sum":
            self._divisor.fill_(1)
        if largest(len(self._kept or ())) and not largest(int(self._kept is None)):
            everywhere = gathered([(a.cpu(), b.cpu()) for a, b in self._kept or ()])
            place = self._training.device
            self._kept = [(a.to(place), b.to(place)) for part in everywhere for a, b in part]
        else:
            self._kept = None
        self._largest = largest(self._largest)
        self._keeps_state = bool(largest(int(self._keeps_something())))
        samples = self._answers.new_tensor(self.num_samples)
        self._answers, self.num_samples = summed(self._answers), int(summed(samples))

    def result(self) -> Validation:
        """Read the sums off the device."""
        confusion = self._confusion
        if confusion is not None:
            side = int(len(confusion) ** 0.5 + 0.5)
            confusion = confusion.reshape(side, side).cpu()
        answers, divisor = int(self._answers), float(self._divisor)
        loss = float(self._loss) / divisor if divisor else math.nan
        if not self._known.per and (whole := self._at_once()) is not None:
            loss = whole
        is_read = self._loss_of.answers.reads
        return Validation(
            loss=loss,
            accuracy=int(self._right) / answers if answers and is_read else None,
            confusion=confusion if is_read else None,
        )

    def _at_once(self) -> float | None:
        """The loss of all outputs and labels together; None, and a note, where it cannot be had."""
        name, training = self._loss_of.name, self._training
        note = f"val/loss is the mean of {name} over batches, weighed by samples: its "
        if self._loss_of.compares_samples:
            return self._note_in_batch()
        if self._keeps_something():
            training.note(f"{note}value goes by what it keeps from call to call")
            return None
        if self._kept is None:
            limit = MOST_BYTES >> 20
            training.note(
                f"{note}outputs and labels take more than {limit} MiB, or are no tensors with one "
                "row for each sample"
            )
            return None
        state = ModuleState(*filter(None, [self._loss_of.module]))
        state.remember()
        random = RandomState(training.device)
        random.save()
        try:
            logits, targets = (torch.cat(part) for part in zip(*self._kept, strict=True))
            self._look_at(logits, targets)
            if self._loss_of.compares_samples:
                return self._note_in_batch()
            with training.forward_context():
                found = float(self._loss_of(logits, targets))
        except Exception as error:  # noqa: BLE001 - batches of other shapes, or a loss made for one batch
            first = str(error).partition("\n")[0][:120]
            training.note(
                f"{note}outputs and labels cannot be taken together "
                f"({type(error).__name__}: {first})"
            )
            return None
        finally:
            random.restore()
            state.restore()  # of a loss that counts its calls, say: a loop has no such call
        return found

    def _look_at(self, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Find out, once, whether the loss compares the samples of a batch."""
        loss = self._loss_of
        if loss.compares_samples is None:
            loss.compares_samples = compares_samples(loss, logits, targets)
            guessed = loss.compares_samples and logits.ndim == 2 and loss.answers.reads
            if guessed and logits.shape[1] > 1 and not means_columns(loss, logits, targets):
                loss.answers.read_nothing()

    def _note_in_batch(self) -> None:
        no_accuracy = "" if self._loss_of.answers.reads else ", and there is no accuracy"
        self._training.note(
            f"val/loss is the mean of {self._loss_of.name} over batches of {self._largest:,}, "
            "weighed by samples: it compares the samples of a batch with each other (an in-batch "
            f"loss), so of the whole set at once it would be another loss{no_accuracy}"
        )
