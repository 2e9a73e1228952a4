"""Whether a loss of the user's own may be computed for a whole set at once, and means the same.

A mean or a sum over samples may, and so may what is made of such sums: a mean weighed by classes, a
root of a mean. A loss that compares the samples of a batch with each other may not: in-batch
contrastive losses (InfoNCE, NT-Xent), triplets that are mined in the batch, correlations. Of twice
as many samples each is another quantity.

What is not known of a function is found out by computing it for some rows and for each half of
them. Where every sample acts by itself, a half gives to its rows the gradient that the whole gives
to them, but for one factor; values alone would take a weighted mean for a comparison, and many a
comparison for a mean. Where there is no gradient, the value must be the halves' mean by rows, or
their sum.

A loss that keeps something from call to call is not a function of its batch at all, and is never
called for this: `LossMarks` sees that it changed what it gets at by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import nn

from workbench.experiment.reached import reached

ROWS = 64
"""So many rows are looked at, at most."""
_FEWEST = 4
_SMALL = 1e-5
"""A loss that is smaller says nothing: each half has none, either."""
_TOLERANCE = 1e-5
"""Of values, in float32."""
_ANGLE = 1e-6
"""1 - cosine, of gradients in one direction."""

Function = Callable[[torch.Tensor, Any], torch.Tensor]


def compares_samples(loss: Function, outputs: torch.Tensor, labels: torch.Tensor) -> bool | None:
    """Whether samples of a batch act on each other in ``loss``; None: it cannot be told from these.

    It is called three times, in float32 and without autocast.

    Args:
        loss: gives a scalar of outputs and labels.
        outputs: the model's, ``[rows, ...]``; `ROWS` of them are taken.
        labels: ``[rows, ...]``.

    Raises:
        Exception: what the loss raises for the rows together.
    """
    rows = min(len(outputs), ROWS)
    if rows < _FEWEST or labels.shape[:1] != outputs.shape[:1]:
        return None
    outputs, labels = _plain(outputs[:rows]), labels[:rows]
    value, gradient = _computed(loss, outputs, labels)
    halves = [torch.arange(first, rows, 2, device=outputs.device) for first in (0, 1)]
    try:
        parts = [_computed(loss, outputs[half], labels[half]) for half in halves]
    except Exception:  # noqa: BLE001 - it is made for a batch as it is
        return True
    values = [part for part, _ in parts]
    finite = all(torch.isfinite(torch.tensor([value, *values])))
    if not finite or abs(value) < _SMALL:
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
    outputs, labels = _plain(outputs[:ROWS]), labels[:ROWS]
    with _no_autocast(outputs):
        here, turned = (loss(x, labels).item() for x in (outputs, outputs.roll(1, 1)))
    return abs(here - turned) > _TOLERANCE * abs(here)


class LossMarks:
    """What a loss gets at by name, as it was: to see that calling it changes something of it."""

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self._marks = _marks(loss)

    def changed(self) -> bool:
        """Whether anything is another value, or was written in place."""
        return self._marks != _marks(self._loss)


def _plain(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.detach().to(torch.promote_types(outputs.dtype, torch.float32))


def _no_autocast(outputs: torch.Tensor) -> torch.autocast:
    return torch.autocast(outputs.device.type, enabled=False)


def _computed(
    loss: Function, outputs: torch.Tensor, labels: torch.Tensor
) -> tuple[float, torch.Tensor | None]:
    """Value, and gradient with respect to the outputs; None where it has none."""
    with torch.enable_grad(), _no_autocast(outputs):
        given = outputs.clone().requires_grad_()
        value = loss(given, labels)
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


def _marks(loss: Any) -> list[Any]:
    return [(name, *_mark(value)) for name, value in _values(loss)]


def _values(loss: Any) -> Iterator[tuple[str, Any]]:
    is_module = isinstance(loss, nn.Module)
    by_name = [("", loss), *reached(loss.forward)] if is_module else reached(loss)
    for name, value in by_name:
        if not isinstance(value, nn.Module):
            yield name, value
            continue
        for path, module in value.named_modules():
            own = {**vars(module), **cast("dict[str, Any]", vars(module)["_buffers"])}
            for key, held in own.items():
                if not key.startswith("_"):
                    yield f"{name}.{path}.{key}", held


def _mark(value: Any) -> tuple[Any, ...]:
    """Something that differs once ``value`` has been exchanged or written."""
    if isinstance(value, torch.Tensor):
        written = -1 if value.is_inference() else value._version  # pyright: ignore[reportPrivateUsage] - torch's count of writes in place
        return id(value), written
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return (repr(value),)
    if isinstance(value, (list, dict, set, frozenset, tuple)):
        return id(cast(Any, value)), len(cast(Any, value))
    return (id(value),)
