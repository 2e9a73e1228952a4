"""Known facts about a loss function: what it compares, its mean's divisor, which labels count.

Torch's own losses are recognised, as modules, as functions, and as a ``functools.partial`` of one.
Nothing is assumed about a user-defined function: `LossKind.OTHER`.
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
    """How a loss interprets the model's output."""

    CLASSES = "one score for each class"
    LABELS = "one logit for each label, yes from 0 on"
    PROBABILITIES = "one probability for each label"
    NUMBERS = "numbers to come close to"
    FEATURES = "features, of which it makes scores itself"
    OTHER = "not known"


class Per(Enum):
    """Divisor of the mean of a loss."""

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
"""How each interprets the output, and what its mean divides by."""
_IGNORE_INDEX = -100
"""The label that torch ignores by default, in losses that ignore one."""


@dataclass(frozen=True)
class KnownLoss:
    """Known facts about one loss function."""

    kind: LossKind = LossKind.OTHER
    per: Per | None = None
    """Divisor of its mean; None if it is not known."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings of a function."""
    module: nn.Module | None = None
    """A loss module, whose settings are read when they are needed: a cell may change them."""
    function: Any = None
    """A user-defined loss."""

    def _setting(self, name: str) -> Any:
        return self.settings.get(name) if self.module is None else getattr(self.module, name, None)

    @property
    def reduction(self) -> str:
        """``mean``, ``sum``, ``none`` or ``batchmean``."""
        # modules have translated these deprecated names; functions do it in every call
        old = [self.settings.get(name) for name in ("size_average", "reduce")]
        if old != [None, None]:
            return reduction_of(*old)
        return str(self._setting("reduction") or "mean")

    @property
    def has_class_dim(self) -> bool:
        """Whether the dimension of the classes is known; a divergence is over all numbers."""
        return self.per is not Per.ELEMENTS

    @property
    def ignore_index(self) -> int:
        """The label for which nothing is computed: the loss's own, or that of a loss it calls."""
        found = self._setting("ignore_index")
        if not isinstance(found, int):
            found = self.named_in_code.label
        return _IGNORE_INDEX if found is None else found

    @functools.cached_property  # needed in every step
    def named_in_code(self) -> Ignored:
        """The label that a user-defined loss ignores, as far as its code shows."""
        if self.function is None or self.per:
            return Ignored(None, is_readable=True)
        return ignored_label(functools.partial(self.function, **self.settings))

    def divisor(self, logits: torch.Tensor, targets: Any) -> torch.Tensor | float | None:
        """Return what the mean over this batch divides by; None if it is not known.

        A mean over a whole set is the sum of its batches' means times their divisors, over the sum
        of these. No value is read from a device.
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
        """Return whether it has a weight for each sample of a batch.

        Such a weight does not apply to parts of the batch.
        """
        weight = self._setting("weight")
        if self.per not in (Per.ELEMENTS, Per.OUTPUTS) or not isinstance(weight, torch.Tensor):
            return False
        return weight.ndim >= logits.ndim and weight.ndim > 0 and len(weight) > 1

    def broadcasts(self, logits: torch.Tensor, targets: torch.Tensor) -> bool:
        """Return whether every output is compared with every label.

        An example is ``[batch, 1]`` against ``[batch]``.
        """
        if self.per is not Per.ELEMENTS:
            return False
        shape = torch.broadcast_shapes(logits.shape, targets.shape)
        return shape.numel() > max(logits.numel(), targets.numel())


def look_up(function: Any) -> KnownLoss:
    """Return what is known about ``function``."""
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
    """Register ``function`` as the kind of ``like``, with labels in the outputs' shape."""
    _KNOWN[function] = (_KNOWN[like][0], Per.OUTPUTS)


def counted(labels: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Return which of these integer labels count, as booleans."""
    return labels.long() != ignore_index  # as uint8, -100 would be class 156
