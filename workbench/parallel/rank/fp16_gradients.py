"""Under ``fp16``, make a sum of gradients overflow on ranks where it would in one process.

Autocast computes the gradient of a weight in float16: a sum over the rows of a batch, rounded, and
cast to the weight's own type. Each rank rounds the sum over its own rows, and ranks sum in float32,
so what is too large for float16 in one process is not too large there. The scaler of one process
would skip that step and halve its scale. So a value that would not fit for the sum of all rows is
set to infinity here, too.

Gradients that do not come from such a cast (of a norm, say) may have any size. Compiled code hides
its casts: under ``compile`` the scale may settle higher than in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from workbench.parallel.checks.branches import nodes_below
from workbench.torch_private.distributed import gathered_parameters
from workbench.torch_private.graph_leaves import leaf_of
from workbench.torch_private.kernels import norms_of

_OVERFLOWS = 65_520.0
"""From this number on a number is infinite in float16: half-way between its largest, 65,504, and
the next that it would have."""


@torch.no_grad()
def overflow_as_whole(model: nn.Module, loss: torch.Tensor) -> None:
    """Set gradients to infinity that one process would have rounded to infinity.

    Args:
        model: the model as it is laid out over the ranks, with the summed and still scaled
            gradients of all ranks.
        loss: the loss on which backward was called.
    """
    own = [(one, _local(one.grad)) for one in model.parameters() if one.grad is not None]
    dense = [(one, grad) for one, grad in own if grad.is_floating_point() and not grad.is_sparse]
    filled = [(one, grad) for one, grad in dense if grad.numel()]
    if not filled:
        return
    largest = norms_of([grad for _, grad in filled], torch.inf)
    too_large = (torch.stack([one.float() for one in largest]) >= _OVERFLOWS).tolist()
    if not any(too_large):
        return
    rounded = _rounded(model, loss, [parameter for parameter, _ in filled])
    for (_, grad), is_too_large, is_rounded in zip(filled, too_large, rounded, strict=True):
        if is_too_large and is_rounded:
            infinite = torch.copysign(torch.full_like(grad, torch.inf), grad)
            grad.copy_(torch.where(grad.abs() < _OVERFLOWS, grad, infinite))


def _local(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def _rounded(
    model: nn.Module, loss: torch.Tensor, parameters: Sequence[nn.Parameter]
) -> list[bool]:
    """Return per parameter whether its gradient comes only by casts from float16, on any rank.

    Ranks may have taken different paths through the model. Where whole gradients are the same on
    all of them, so is the result; for shards each rank has its own, and the scaler makes ranks
    agree.
    """
    leaves = {id(one): id(one) for one in model.parameters()}
    shards = gathered_parameters(model)
    leaves |= {id(whole): shard for shard, whole in shards.items()}
    by: dict[int, list[float]] = {}
    for node in nodes_below(loss):
        for other, _ in node.next_functions:
            if other is not None and (leaf := leaf_of(other)) is not None and id(leaf) in leaves:
                by.setdefault(leaves[id(leaf)], [0.0, 0.0])[not _is_cast(node)] = 1.0
    uses = torch.tensor([by.get(id(one), [0.0, 0.0]) for one in parameters], device=loss.device)
    if not shards:
        dist.all_reduce(uses)
    return [bool(cast and not other) for cast, other in uses.tolist()]


def _is_cast(node: Any) -> bool:
    """Whether the node's gradient arrives in float16 and is passed on in another type."""
    if type(node).__name__ != "ToCopyBackward0":
        return False
    return node._input_metadata[0].dtype is torch.float16  # torch has no public name for it
