"""Answers of a model, and the right ones, by how its loss interprets outputs and labels.

`AnswerReader` decides once, at the first batch, and does not change: a batch in which two lengths
happen to be equal is read like all others. Labels that are not a class of the outputs are not
counted. If it cannot be known what an answer is (a regression, a user-defined loss on numbers),
there is none, and no accuracy is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from workbench.experiment.recipe.loss_kinds import KnownLoss, LossKind, counted


class Answers(NamedTuple):
    """The model's answers, and the right ones; of one shape."""

    given: torch.Tensor
    wanted: torch.Tensor
    counts: torch.Tensor | None
    """Which of them count, as booleans; None if all do."""
    beyond: torch.Tensor | None = None
    """Whether a label is not a column of the outputs; None if that says nothing about these."""

    def tally(self) -> tuple[torch.Tensor, torch.Tensor | int]:
        """Return (right answers, answers); no value is read from the device."""
        right = self.given == self.wanted
        if self.counts is None:
            return right.sum(), right.numel()
        return (right & self.counts).sum(), self.counts.sum()


class _Facts(NamedTuple):
    """Facts about all values of a batch; True if one does not apply to such a batch."""

    labels_sum_to_one: bool
    labels_have_columns: bool
    outputs_within_one: bool
    labels_within_one: bool
    labels_are_signs: bool
    outputs_not_negative: bool


Agreement = Callable[[Sequence[bool]], Sequence[bool]]
"""Returns which of some facts hold on all ranks."""


class AnswerReader:
    """Reads answers from a model's outputs.

    Args:
        known: what is known about the loss.
    """

    def __init__(self, known: KnownLoss) -> None:
        self._known = known
        self._decided = False
        self._take(known.kind)
        self._class_dim = 1
        self.note = ""
        """How answers are read, if a user could mistake them for something else."""

    def _take(self, kind: LossKind) -> None:
        self._kind = kind
        self.reads = kind in (LossKind.CLASSES, LossKind.LABELS, LossKind.PROBABILITIES)
        """Whether there are answers to read, as far as that is decided."""

    @property
    def is_guess(self) -> bool:
        """Whether the loss does not define how it interprets the outputs."""
        return self._known.kind is LossKind.OTHER

    @property
    def decision(self) -> tuple[str, int]:
        """How answers are read.

        It must be the same on all ranks, or nothing can be counted together.
        """
        return self._kind.name, self._class_dim

    def decide(self, logits: torch.Tensor, targets: Any, agreed: Agreement | None = None) -> None:
        """Decide by a first batch; values are read if the loss does not define what they are.

        Args:
            logits: the model's outputs.
            targets: targets of the batch, or of a rank's part of it.
            agreed: returns what holds for the parts of all ranks; each of them calls it.
        """
        if self._decided or not isinstance(targets, torch.Tensor):
            return
        self._decided = True
        if self._kind is LossKind.OTHER:
            facts = _facts(logits, targets, self._known.ignore_index)
            facts = facts if agreed is None else _Facts(*agreed(facts))
            self._take(self._kind_of(logits, targets, facts))
        if self._kind is LossKind.CLASSES and not self._known.has_class_dim and logits.ndim > 2:
            self._take(LossKind.NUMBERS)
        labels = self._kind in (LossKind.LABELS, LossKind.PROBABILITIES)
        if labels and logits.ndim > 1 and logits.shape[1] > 1:
            self.note = (
                f"accuracy counts each of the {logits.shape[1:].numel():,} labels of a sample by "
                "itself"
            )

    def read_nothing(self) -> None:
        """Read no answers from now on: the outputs have turned out not to be scores of classes.

        They are features, or thresholds between ranks (a label has no column).
        """
        self._take(LossKind.FEATURES)

    def read(self, logits: torch.Tensor, targets: Any) -> Answers | None:
        """Return the answers of a batch; None if there are none. No value is read."""
        if not isinstance(targets, torch.Tensor):
            return None
        if self._kind is LossKind.CLASSES:
            return self._classes(logits, targets)
        if self._kind in (LossKind.LABELS, LossKind.PROBABILITIES):
            if logits.numel() != targets.numel():
                return None
            limit = 0.0 if self._kind is LossKind.LABELS else 0.5
            return Answers(logits > limit, targets.reshape(logits.shape) > 0.5, None)
        return None

    def _classes(self, logits: torch.Tensor, targets: torch.Tensor) -> Answers | None:
        if logits.ndim < 2:
            return None
        if targets.is_floating_point():  # one-hot, or soft: the largest is the right one
            if targets.shape != logits.shape:
                return None
            return Answers(logits.argmax(self._class_dim), targets.argmax(self._class_dim), None)
        answers = _without(logits, self._class_dim)
        if answers != tuple(targets.shape):
            return None
        counts = counted(targets, self._known.ignore_index)
        columns = logits.shape[self._class_dim]
        beyond = (
            (counts & (targets >= columns)).any() if self.is_guess and _is_wide(logits) else None
        )
        counts = counts & (targets >= 0) & (targets < columns)
        return Answers(logits.argmax(self._class_dim), targets.long(), counts, beyond)

    def _kind_of(self, logits: torch.Tensor, targets: torch.Tensor, facts: _Facts) -> LossKind:
        """Return how a user-defined loss interprets them, as far as a batch shows it."""
        same = logits.numel() == targets.numel()
        signs = facts.labels_are_signs and not facts.labels_within_one
        # -1 and 1, as used for margins; without a negative output it may be a distance
        if same and signs and not facts.outputs_not_negative:
            return LossKind.LABELS
        if targets.is_floating_point():
            soft = targets.shape == logits.shape and _is_wide(logits)
            return LossKind.CLASSES if soft and facts.labels_sum_to_one else LossKind.NUMBERS
        second = logits.ndim >= 2 and _without(logits, 1) == tuple(targets.shape)
        last = logits.ndim >= 3 and _without(logits, -1) == tuple(targets.shape)
        if _is_wide(logits) and second and not facts.labels_have_columns:
            return LossKind.OTHER  # more classes than columns: these are features
        if (second or last) and logits.shape[-1 if last else 1] > 1:
            self._class_dim = -1 if last else 1
            if logits.ndim >= 3:
                self.note = (
                    f"accuracy takes the {'last' if last else 'second'} dimension of the logits, "
                    f"{list(logits.shape)}, for the classes"
                )
            return LossKind.CLASSES
        # one logit for each label: a probability would be compared with 0.5, and looks like one
        if same and facts.labels_within_one and not facts.outputs_within_one:
            return LossKind.LABELS
        self.note = (
            "no accuracy is shown: the loss does not say what it takes outputs of shape "
            f"{list(logits.shape)} for with labels of shape {list(targets.shape)}"
        )
        return LossKind.OTHER


def _facts(logits: torch.Tensor, targets: torch.Tensor, ignore_index: int) -> _Facts:
    if targets.is_floating_point():
        soft = targets.shape == logits.shape and _is_wide(logits)
        return _Facts(
            labels_sum_to_one=soft and _sums_to_one(targets),
            labels_have_columns=True,
            outputs_within_one=True,
            labels_within_one=_within_one(targets),
            labels_are_signs=_are_signs(targets),
            outputs_not_negative=bool((logits >= 0).all()),
        )
    has_columns = True
    if _is_wide(logits):
        has_columns = bool((targets[counted(targets, ignore_index)] < logits.shape[1]).all())
    return _Facts(
        labels_sum_to_one=True,
        labels_have_columns=has_columns,
        outputs_within_one=_within_one(logits),
        labels_within_one=_within_one(targets),
        labels_are_signs=_are_signs(targets),
        outputs_not_negative=bool((logits >= 0).all()),
    )


def _is_wide(logits: torch.Tensor) -> bool:
    return logits.ndim == 2 and logits.shape[1] > 1


def _without(logits: torch.Tensor, dim: int) -> tuple[int, ...]:
    shape = list(logits.shape)
    del shape[dim]
    return tuple(shape)


def _within_one(values: torch.Tensor) -> bool:
    return not values.is_complex() and bool(((values >= 0) & (values <= 1)).all())


def _are_signs(values: torch.Tensor) -> bool:
    # an unsigned 255 would be read as -1
    return values.dtype.is_signed and bool(((values == 1) | (values == -1)).all())


def _sums_to_one(rows: torch.Tensor) -> bool:
    return bool(((rows.float().sum(1) - 1).abs() <= 1e-3).all()) and _within_one(rows)
