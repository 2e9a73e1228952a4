"""What is known of a loss function: what it compares, what its mean divides by, which labels count.

Torch's own losses are known by what they are, as modules, as functions, and as a
``functools.partial`` of one. Of a function of the user's own nothing is assumed: `LossKind.OTHER`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import nn

from workbench.experiment.recipe.ignored_labels import Ignored, ignored_label
from workbench.torch_private.modules import reduction_of


class LossKind(Enum):
    """What a loss takes the model's output for."""

    CLASSES = "one score for each class"
    LABELS = "one logit for each label, yes from 0 on"
    PROBABILITIES = "one probability for each label"
    NUMBERS = "numbers to come close to"
    FEATURES = "features, of which it makes scores itself"
    OTHER = "not known"


class Per(Enum):
    """What the mean of a loss divides by."""

    LABELS = "labels that count, or their weights"
    SAMPLES = "samples"
    ELEMENTS = "numbers of outputs and labels, of one shape"
    OUTPUTS = "numbers of outputs, into whose shape labels are brought"


_KNOWN: dict[Any, tuple[LossKind, Per]] = {
    nn.CrossEntropyLoss: (LossKind.CLASSES, Per.LABELS),
    F.cross_entropy: (LossKind.CLASSES, Per.LABELS),
    nn.NLLLoss: (LossKind.CLASSES, Per.LABELS),
    F.nll_loss: (LossKind.CLASSES, Per.LABELS),
    nn.MultiMarginLoss: (LossKind.CLASSES, Per.SAMPLES),
    F.multi_margin_loss: (LossKind.CLASSES, Per.SAMPLES),
    nn.KLDivLoss: (LossKind.CLASSES, Per.ELEMENTS),
    F.kl_div: (LossKind.CLASSES, Per.ELEMENTS),
    nn.BCEWithLogitsLoss: (LossKind.LABELS, Per.ELEMENTS),
    F.binary_cross_entropy_with_logits: (LossKind.LABELS, Per.ELEMENTS),
    nn.SoftMarginLoss: (LossKind.LABELS, Per.ELEMENTS),
    F.soft_margin_loss: (LossKind.LABELS, Per.ELEMENTS),
    nn.MultiLabelSoftMarginLoss: (LossKind.LABELS, Per.SAMPLES),
    F.multilabel_soft_margin_loss: (LossKind.LABELS, Per.SAMPLES),
    nn.BCELoss: (LossKind.PROBABILITIES, Per.ELEMENTS),
    F.binary_cross_entropy: (LossKind.PROBABILITIES, Per.ELEMENTS),
    nn.MSELoss: (LossKind.NUMBERS, Per.ELEMENTS),
    F.mse_loss: (LossKind.NUMBERS, Per.ELEMENTS),
    nn.L1Loss: (LossKind.NUMBERS, Per.ELEMENTS),
    F.l1_loss: (LossKind.NUMBERS, Per.ELEMENTS),
    nn.SmoothL1Loss: (LossKind.NUMBERS, Per.ELEMENTS),
    F.smooth_l1_loss: (LossKind.NUMBERS, Per.ELEMENTS),
    nn.HuberLoss: (LossKind.NUMBERS, Per.ELEMENTS),
    F.huber_loss: (LossKind.NUMBERS, Per.ELEMENTS),
    nn.HingeEmbeddingLoss: (LossKind.NUMBERS, Per.ELEMENTS),
    F.hinge_embedding_loss: (LossKind.NUMBERS, Per.ELEMENTS),
    nn.PoissonNLLLoss: (LossKind.NUMBERS, Per.ELEMENTS),
    F.poisson_nll_loss: (LossKind.NUMBERS, Per.ELEMENTS),
}
"""What each takes the output for, and what its mean divides by."""
_IGNORE_INDEX = -100
"""What torch leaves out by default, where it leaves labels out."""


@dataclass(frozen=True)
class KnownLoss:
    """What is known of one loss function."""

    kind: LossKind = LossKind.OTHER
    per: Per | None = None
    """What its mean divides by; None: not known."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of a function."""
    module: nn.Module | None = None
    """A loss module, whose settings are read when they are asked for: a cell may set others."""
    function: Any = None
    """One of the user's own."""

    def _setting(self, name: str) -> Any:
        return self.settings.get(name) if self.module is None else getattr(self.module, name, None)

    @property
    def reduction(self) -> str:
        """``mean``, ``sum``, ``none`` or ``batchmean``."""
        # modules have translated these names of former days; functions do it in every call
        old = [self.settings.get(name) for name in ("size_average", "reduce")]
        if old != [None, None]:
            return reduction_of(*old)
        return str(self._setting("reduction") or "mean")

    @property
    def has_class_dim(self) -> bool:
        """Whether it is known which dimension the classes have; a divergence is of all numbers."""
        return self.per is not Per.ELEMENTS

    @property
    def ignore_index(self) -> int:
        """The label for which nothing is computed: the loss's own, or that of one it calls."""
        found = self._setting("ignore_index")
        if not isinstance(found, int):
            found = self.named_in_code.label
        return _IGNORE_INDEX if found is None else found

    @functools.cached_property  # asked for in every step
    def named_in_code(self) -> Ignored:
        """The label that a loss of the user's own ignores, as far as its code says."""
        if self.function is None or self.per:
            return Ignored(None, is_readable=True)
        return ignored_label(functools.partial(self.function, **self.settings))

    def divisor(self, logits: torch.Tensor, targets: Any) -> torch.Tensor | float | None:
        """What the mean over this batch divides by; None where that is not known.

        A mean over a whole set is the sum of its batches' means times their divisors, over the sum
        of these. Nothing is read off a device.
        """
        if not self.per or not isinstance(targets, torch.Tensor):
            return None
        if self.per is Per.SAMPLES or self.reduction == "batchmean":
            return float(len(logits))
        if self.per is Per.OUTPUTS:
            return float(logits.numel())
        if self.per is Per.ELEMENTS:
            if self.broadcasts(logits, targets):
                return None
            return float(torch.broadcast_shapes(logits.shape, targets.shape).numel())
        if (
            targets.is_floating_point()
        ):  # soft labels: torch divides by their number, weighted or not
            return float(targets.numel() // targets.shape[1])
        counts = counted(targets, self.ignore_index)
        weight = self._setting("weight")
        if weight is None:
            return counts.sum()
        labels = targets.long().masked_fill(~counts, 0)
        return (weight.to(labels.device)[labels] * counts).sum()

    def weighs_rows(self, logits: torch.Tensor) -> bool:
        """Whether it has a weight for each sample of a batch, which is not that of its parts."""
        weight = self._setting("weight")
        if self.per not in (Per.ELEMENTS, Per.OUTPUTS) or not isinstance(weight, torch.Tensor):
            return False
        return weight.ndim >= logits.ndim and weight.ndim > 0 and len(weight) > 1

    def broadcasts(self, logits: torch.Tensor, targets: torch.Tensor) -> bool:
        """Whether every output is compared with every label: ``[batch, 1]`` against ``[batch]``."""
        if self.per is not Per.ELEMENTS:
            return False
        shape = torch.broadcast_shapes(logits.shape, targets.shape)
        return shape.numel() > max(logits.numel(), targets.numel())


def look_up(function: Any) -> KnownLoss:
    """What is known of ``function``."""
    settings: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        part = cast("functools.partial[Any]", function)
        settings = {**part.keywords, **settings}
        if part.args:  # logits or labels that are bound: it is another function
            return KnownLoss()
        function = part.func
    if isinstance(function, nn.Module):
        found = _KNOWN.get(type(function))
        if found is not None:
            return KnownLoss(*found, module=function)
        if any(True for _ in function.parameters()):
            return KnownLoss(LossKind.FEATURES, module=function, function=function)
        base = next((kind for kind in type(function).__mro__ if kind in _KNOWN), None)
        # a subclass may compute another mean, of the same outputs and labels
        kind = _KNOWN[base][0] if base else LossKind.OTHER
        return KnownLoss(kind, module=function, function=function)
    found = _KNOWN.get(function) if callable(function) else None
    return KnownLoss(*found, settings) if found else KnownLoss(settings=settings, function=function)


def register(function: Callable[..., Any], like: Callable[..., Any]) -> None:
    """Know ``function`` for what ``like`` is, of labels that it brings into the outputs' shape."""
    _KNOWN[function] = (_KNOWN[like][0], Per.OUTPUTS)


def counted(labels: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Which of these integer labels count, as booleans."""
    return labels.long() != ignore_index  # as uint8, -100 would be class 156
