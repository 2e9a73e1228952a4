"""Check whether a user's loss can be computed for a whole set at once with the same meaning.

A mean or a sum over samples can, and so can what is computed from such sums: a mean weighted by
class, a root of a mean. A loss that compares the samples of a batch with each other cannot:
in-batch contrastive losses (InfoNCE, NT-Xent), triplets that are mined in the batch, correlations.
For twice as many samples each of them is a different quantity.

What is not known about a function is found out by computing it for some rows, from all over the set
(which may be sorted by class), and for each half of them. If every sample acts by itself, a half
gives its rows the gradient that the whole gives them, up to one factor; values alone would mistake
a weighted mean for a comparison, and many a comparison for a mean. If there is no gradient, the
value must be the mean of the halves, weighted by rows, or their sum. A loss of two terms that
divide by different things is treated as a comparison: it is not known to add up either.

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
"""Maximum number of rows that are used."""
_TOGETHER = 4
"""Number of adjacent rows: of one class, if the set is sorted by class."""
_FEWEST = 4
_SMALL = 1e-5
"""A loss that is smaller shows nothing: the halves have none, either."""
_TOLERANCE = 1e-5
"""Tolerance of values, in float32."""
_ANGLE = 1e-9
"""Limit of 1 - cosine for gradients in one direction: a square, so that float32's rounding gives
1e-12."""

Function = Callable[[torch.Tensor, Any], torch.Tensor]


@dataclass
class LossScope:
    """Findings of validations about a user-defined loss; they hold from then on."""

    by_batches: str = ""
    """Why ``val/loss`` is a mean over batches, as the end of a sentence; ``""`` if it is not, so
    far."""
    is_repeatable: bool = True
    """Whether it may be called more often than for the batches, as far as is known."""
    adds_up: bool = False
    """Whether it is known not to compare samples."""
    takes_scores: bool | None = None
    """Whether it treats the outputs as scores of classes; None if nothing has shown it."""


def compares_samples(loss: Function, outputs: torch.Tensor, labels: torch.Tensor) -> bool | None:
    """Return whether samples of a batch interact in ``loss``; None if that cannot be determined.

    It is called three times, in float32 and without autocast.

    Args:
        loss: returns a scalar for outputs and labels.
        outputs: the model's outputs, ``[rows, ...]``; `ROWS` of them are taken, from all over.
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
    """Return whether the order of ``outputs``'s columns matters to ``loss``, as for class scores.

    Features may be rotated: a loss that compares samples by a product or a distance gives the same.
    It is called twice.
    """
    outputs, labels = _some(outputs, labels)
    with _no_autocast(outputs):
        here, turned = (
            loss(x, labels.clone()).item() for x in (outputs.clone(), outputs.roll(1, 1))
        )
    return abs(here - turned) > _TOLERANCE * abs(here)


def _some(outputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of both, a few adjacent ones from each of several places; outputs in float32."""
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
    """Return two halves without a pattern: every other label may be one that does not count."""
    order = torch.randperm(rows, generator=torch.Generator("cpu").manual_seed(0), device="cpu")
    return order[: rows // 2].sort().values, order[rows // 2 :].sort().values


def _no_autocast(outputs: torch.Tensor) -> torch.autocast:
    return torch.autocast(outputs.device.type, enabled=False)


def _computed(
    loss: Function, outputs: torch.Tensor, labels: torch.Tensor
) -> tuple[float, torch.Tensor | None]:
    """Return the value, and the gradient with respect to the outputs; None if it has none."""
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
