"""The factor by which a gradient scaler multiplied a loss, and the loss as it was before.

A scaler of Workbench reports its scale to the watch of a graph
(`workbench.modes.precision.scaled_backward`). The scale of a scaler of the user's own is known in
two ways. In a block the multiplication itself is seen: a torch function that is called from
`torch.amp.GradScaler.scale`. If a loss is shown without a block, the scalers among the caller's
variables are queried: a loss that is a product with the very tensor in which one of them keeps its
scale was scaled by it; a number of that value may be a weight. What cannot be determined in either
way is stated in a note.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from workbench.graph.core.graph_root import LEAF_TYPE, root_of
from workbench.torch_private.autograd import node_sequence, node_type, raw_values
from workbench.torch_private.grad_scaler import scale_tensor

if TYPE_CHECKING:
    from torch.amp import GradScaler
    from torch.autograd.graph import Node

    from workbench.graph.core.walk import Walk

_PRODUCT = "MulBackward0"
_PRODUCTS = (torch.Tensor.mul, torch.Tensor.__mul__, torch.mul)
_SCALERS = ("torch.amp.grad_scaler", "torch.distributed.fsdp.sharded_grad_scaler")
"""Modules whose ``GradScaler.scale`` multiplies."""
_LOOKS_SCALED = 128.0
"""Smallest constant factor of the loss that may be a scaler's scale: scales begin at 65,536."""


@dataclass(frozen=True)
class ScaledProduct:
    """One multiplication by a gradient scaler; keeps no tensor of the user's alive."""

    number: int
    """Sequence number of the node that it made."""
    scale: torch.Tensor
    """The scaler's own tensor, of one value, which changes at its next ``update()``."""


def scaled_product(func: Any, args: Any, result: Any) -> ScaledProduct | None:
    """The multiplication that a `TorchFunctionMode` sees, if a gradient scaler made it.

    Must be called from ``__torch_function__`` itself.
    """
    if not any(func is one for one in _PRODUCTS):
        return None
    caller = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    if caller.f_globals.get("__name__") not in _SCALERS:
        return None
    scale = args[1] if len(args) == 2 else None
    node = result.grad_fn if isinstance(result, torch.Tensor) else None
    if node is None or not isinstance(scale, torch.Tensor):
        return None
    return ScaledProduct(node_sequence(node), scale)


class Unscaled(NamedTuple):
    """A loss before a scaler multiplied it."""

    root: Node
    """The node that made it."""
    value: torch.Tensor
    """Its value, detached from the graph."""
    scale: float | None
    """The scale; None if no scaler is known to have multiplied the loss."""


def unscaled(
    loss: torch.Tensor,
    products: Iterable[ScaledProduct] = (),
    scalers: Sequence[weakref.ref[GradScaler]] = (),
) -> Unscaled:
    """Undo the scale of a scaler on ``loss``, if it is a product with one.

    Args:
        loss: what backward starts from.
        products: multiplications by scalers, as far as they were seen.
        scalers: scalers that the caller holds.

    Raises:
        NoGraphError: ``loss`` has no graph.
    """
    root = root_of(loss)
    number = node_sequence(root) if node_type(root) == _PRODUCT else None
    scale = next((float(one.scale) for one in products if one.number == number), None)
    if scale is None:
        scale = _scale_in(root, scalers)
    before = root.next_functions[0][0] if scale is not None else None
    if scale is None or before is None or node_type(before) == LEAF_TYPE:
        return Unscaled(root, loss, None)
    return Unscaled(before, loss.detach() / scale, scale)


def held_scalers(variables: Mapping[str, Any]) -> tuple[weakref.ref[GradScaler], ...]:
    """The gradient scalers among the caller's ``variables`` that are enabled."""
    return tuple(
        weakref.ref(value)
        for value in variables.values()
        if isinstance(value, torch.amp.GradScaler) and value.is_enabled()
    )


def scales_of(scalers: Iterable[weakref.ref[GradScaler]]) -> set[float]:
    """The factors that the scalers multiply by now; reads from their devices."""
    return {scaler.get_scale() for one in scalers if (scaler := one()) is not None}


def _scale_in(node: Node, scalers: Iterable[weakref.ref[GradScaler]]) -> float | None:
    """The scale of one of ``scalers``, if ``node`` multiplied by its tensor."""
    factor = _factor_in(node)
    held = [scaler for one in scalers if (scaler := one()) is not None]
    is_scale = factor is not None and any(scale_tensor(one) is factor for one in held)
    return float(factor) if factor is not None and is_scale else None


def scale_notes(graph: Walk, products: Iterable[ScaledProduct] = ()) -> tuple[str, ...]:
    """Notes about a scale that could not be divided out of ``graph``."""
    scale_of = {one.number: float(one.scale) for one in products}
    made = {node_sequence(node) for node in graph.nodes if node_type(node) == _PRODUCT}
    inside = {scale for number, scale in scale_of.items() if number in made}
    if inside:
        scales = " and ".join(f"{scale:,.6g}" for scale in sorted(inside))
        return (
            f"A gradient scaler multiplied a part of this loss by {scales}: the loss and the "
            "gradients below that product carry the factor. Scale the whole loss: "
            "scaler.scale(loss).backward().",
        )
    factor = _factor(graph.nodes[-1])
    if factor is None or not _LOOKS_SCALED <= abs(factor) < math.inf:
        return ()
    return (
        f"This loss is a product with {factor:,.6g}. If that is a gradient scaler's scale, the "
        "loss and all gradients here are that many times too large: give wb.graph(loss) the loss "
        "before it.",
    )


def _factor(node: Node) -> float | None:
    """The constant by which a product multiplies its first factor; None if there is none."""
    factor = _factor_in(node)
    return None if factor is None else float(factor)


def _factor_in(node: Node) -> torch.Tensor | None:
    """The tensor of one value in which that constant is stored."""
    if node_type(node) != _PRODUCT:
        return None
    functions = node.next_functions
    if functions[0][0] is None or (len(functions) > 1 and functions[1][0] is not None):
        return None
    values = raw_values(node, "_raw_saved_other")
    factor = values[0] if len(values) == 1 else None
    if not isinstance(factor, torch.Tensor) or factor.numel() != 1 or factor.is_complex():
        return None
    return None if factor.is_meta else factor
