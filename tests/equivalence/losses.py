"""Losses of a recipe, with the labels that each takes and what has to come before it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.equivalence.models import CLASSES


class Centres(nn.Module):
    """Compares with learnt centres of the classes, as ArcFace does: a loss with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.eye(CLASSES))

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(4 * F.normalize(features) @ F.normalize(self.centres).t(), labels)


def focal(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A function of one's own, whose mean is weighed by nothing that a loop could know."""
    each = F.cross_entropy(logits, labels, reduction="none")
    weight = 1.0 + labels.to(each.dtype)
    return (weight * (1 - (-each).exp()) ** 2 * each).sum() / weight.sum()


def _with_ignored(labels: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(len(labels)) % 5 == 1, -100, labels)


def _soft(labels: torch.Tensor) -> torch.Tensor:
    return 0.9 * F.one_hot(labels, CLASSES).float() + 0.1 / CLASSES


def _several(labels: torch.Tensor) -> torch.Tensor:
    one = F.one_hot(labels, CLASSES)
    return (one + one.roll(1, 1) * (torch.arange(len(labels)) % 2)[:, None]).float()


def _numbers(labels: torch.Tensor) -> torch.Tensor:
    return torch.stack([labels.float() / (1 + at) for at in range(CLASSES)], 1)


_WEIGHTS = torch.linspace(0.5, 2.0, CLASSES)


@dataclass(frozen=True)
class LossOf:
    """How to make one, what its labels are of integer classes, and what the model ends with."""

    make: Callable[[], Any]
    labels: Callable[[torch.Tensor], torch.Tensor] = lambda labels: labels
    end: Callable[[], nn.Module] | None = None
    has_accuracy: bool = True
    precisions: tuple[str, ...] = ("", "bf16", "fp16")


def _log_softmax() -> nn.Module:
    return nn.LogSoftmax(1)


LOSSES: dict[str, LossOf] = {
    "none given": LossOf(lambda: None),
    "cross entropy": LossOf(nn.CrossEntropyLoss),
    "class weights": LossOf(lambda: nn.CrossEntropyLoss(weight=_WEIGHTS)),
    "ignored labels": LossOf(nn.CrossEntropyLoss, _with_ignored),
    "label smoothing": LossOf(
        lambda: nn.CrossEntropyLoss(weight=_WEIGHTS, label_smoothing=0.1), _with_ignored
    ),
    "summed": LossOf(lambda: nn.CrossEntropyLoss(reduction="sum")),
    "soft labels": LossOf(nn.CrossEntropyLoss, _soft),
    "soft labels, weights": LossOf(lambda: nn.CrossEntropyLoss(weight=_WEIGHTS), _soft),
    "partial": LossOf(lambda: functools.partial(F.cross_entropy, label_smoothing=0.2)),
    "negative log likelihood": LossOf(lambda: nn.NLLLoss(_WEIGHTS), end=_log_softmax),
    "multi margin": LossOf(nn.MultiMarginLoss, precisions=("",)),
    "kl divergence": LossOf(lambda: nn.KLDivLoss(reduction="batchmean"), _soft, _log_softmax),
    "labels": LossOf(lambda: nn.BCEWithLogitsLoss(pos_weight=_WEIGHTS), _several),
    "probabilities": LossOf(nn.BCELoss, _several, nn.Sigmoid, precisions=("",)),
    "multi-label soft margin": LossOf(nn.MultiLabelSoftMarginLoss, _several),
    "mean squares": LossOf(nn.MSELoss, _numbers, has_accuracy=False),
    "absolute": LossOf(nn.L1Loss, _numbers, has_accuracy=False),
    "smooth": LossOf(nn.SmoothL1Loss, _numbers, has_accuracy=False),
    "huber": LossOf(nn.HuberLoss, _numbers, has_accuracy=False),
    "poisson": LossOf(nn.PoissonNLLLoss, _numbers, has_accuracy=False),
    "of one's own": LossOf(lambda: focal),
    "with parameters": LossOf(Centres, precisions=("",)),
}
