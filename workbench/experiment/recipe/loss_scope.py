"""Whether a loss of the user's own may be computed for a whole set at once, and means the same.

A mean or a sum over samples may, and so may what is made of such sums: a mean weighed by classes, a
root of a mean. A loss that compares the samples of a batch with each other may not: in-batch
contrastive losses (InfoNCE, NT-Xent), triplets that are mined in the batch, correlations. Of twice
as many samples each is another quantity.

What is not known of a function is found out by computing it for some rows, from all over the set
(which may be sorted by class), and for each half of them. Where every sample acts by itself, a half
gives to its rows the gradient that the whole gives to them, but for one factor; values alone would
take a weighted mean for a comparison, and many a comparison for a mean. Where there is no gradient,
the value must be the halves' mean by rows, or their sum. A loss of two terms that divide by
different things is taken for a comparison: of it, too, nothing is known to add up.

Only a loss that is known to keep nothing is called for this
(`workbench.experiment.recipe.loss_state`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

ROWS = 64
"""So many rows are looked at, at most."""
_TOGETHER = 4
"""Rows next to each other: of one class, where the set is sorted by class."""
_FEWEST = 4
_SMALL = 1e-5
"""A loss that is smaller says nothing: each half has none, either."""
_TOLERANCE = 1e-5
"""Of values, in float32."""
_ANGLE = 1e-9
"""1 - cosine, of gradients in one direction: a square, so that of float32's rounding is 1e-12."""

Function = Callable[[torch.Tensor, Any], torch.Tensor]


@dataclass
class LossScope:
    """What validations have found out of a loss of the user's own; it holds from then on."""

    by_batches: str = ""
    """Why ``val/loss`` is a mean over batches, as the end of a sentence; ``""``: it is not, yet."""
    is_repeatable: bool = True
    """Whether it may be called more often than for the batches, as far as is known."""
    adds_up: bool = False
    """Whether it is known to compare no samples."""
    takes_scores: bool | None = None
    """Whether the outputs are scores of classes to it; None: nothing has shown it."""


def compares_samples(loss: Function, outputs: torch.Tensor, labels: torch.Tensor) -> bool | None:
    """Whether samples of a batch act on each other in ``loss``; None: it cannot be told from these.

    It is called three times, in float32 and without autocast.

    Args:
        loss: gives a scalar of outputs and labels.
        outputs: the model's, ``[rows, ...]``; `ROWS` of them are taken, from all over.
        labels: ``[rows, ...]``.

    Raises:
        Exception: what the loss raises for the rows together.
    """
    rows = min(len(outputs), ROWS)
    if rows < _FEWEST or labels.shape[:1] != outputs.shape[:1]:
        return None
    outputs, labels = _some(outputs, labels)
    value, gradient = _computed(loss, outputs, labels)
    halves = [half.to(outputs.device) for half in _halves(rows)]
    try:
        parts = [_computed(loss, outputs[half], labels[half]) for half in halves]
    except Exception:  # noqa: BLE001 - it is made for a batch as it is
        return True
    values = [part for part, _ in parts]
    if not all(map(math.isfinite, (value, *values))) or abs(value) < _SMALL:
        return None
    if gradient is None:
        mean = sum(len(half) * part for half, part in zip(halves, values, strict=True)) / rows
        return all(abs(value - one) > _TOLERANCE * abs(value) for one in (mean, sum(values)))
    return not all(
        own is not None and _one_direction(gradient[half], own)
        for half, (_, own) in zip(halves, parts, strict=True)
    )


def means_columns(loss: Function, outputs: torch.Tensor, labels: torch.Tensor) -> bool:
    """Whether it matters to ``loss`` which column of ``outputs`` is which, as of scores of classes.

    Features may be turned: what compares samples by a product or a distance gives the same. It is
    called twice.
    """
    outputs, labels = _some(outputs, labels)
    with _no_autocast(outputs):
        here, turned = (
            loss(x, labels.clone()).item() for x in (outputs.clone(), outputs.roll(1, 1))
        )
    return abs(here - turned) > _TOLERANCE * abs(here)


def _some(outputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of both, a few next to each other from each of several places; outputs in float32."""
    count = len(outputs)
    if count > ROWS:
        first = torch.linspace(
            0, count - _TOGETHER, ROWS // _TOGETHER, dtype=torch.float64, device="cpu"
        ).long()
        rows = (first[:, None] + torch.arange(_TOGETHER, device="cpu")).flatten()
        rows = rows.to(outputs.device)
        outputs, labels = outputs[rows], labels[rows.to(labels.device)]
    dtype = torch.promote_types(outputs.dtype, torch.float32)
    return outputs.detach().to(dtype), labels


def _halves(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two halves without a pattern: every other label may be one that does not count."""
    order = torch.randperm(rows, generator=torch.Generator("cpu").manual_seed(0), device="cpu")
    return order[: rows // 2].sort().values, order[rows // 2 :].sort().values


def _no_autocast(outputs: torch.Tensor) -> torch.autocast:
    return torch.autocast(outputs.device.type, enabled=False)


def _computed(
    loss: Function, outputs: torch.Tensor, labels: torch.Tensor
) -> tuple[float, torch.Tensor | None]:
    """Value, and gradient with respect to the outputs; None where it has none."""
    with torch.enable_grad(), _no_autocast(outputs):
        given = outputs.clone().requires_grad_()
        value = loss(given.clone(), labels.clone())  # it may write into them
        if not value.requires_grad:
            return value.item(), None
        (gradient,) = torch.autograd.grad(value, given, allow_unused=True)
    return value.item(), gradient


def _one_direction(one: torch.Tensor, other: torch.Tensor) -> bool:
    one, other = (gradient.flatten().double() for gradient in (one, other))
    norms = float(one.norm() * other.norm())
    if not norms:
        return float(one.norm() + other.norm()) == 0.0
    return float(one @ other) >= (1 - _ANGLE) * norms
