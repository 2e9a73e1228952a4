"""Paths through a model that no step on ranks has taken before, found in its outputs' graph.

Whether a step can be divided among ranks is determined with a first batch
(`workbench.parallel.checks.batch_sums`). A model may later begin to do what cannot be divided: to
subtract a mean over the batch after a warm-up, say. Then the graph has an operation that was not
there before. The ranks abandon that step and the training comes back to the kernel; the step is
computed in one process, where this very batch is compared as a whole and in parts, and new ranks
start with the result.

*What is new*: a pair of consecutive operations that no step before had; a sum over other dimensions
is another operation, and so is one that selects samples by their position. Pairs of operations that
work element by element, or of layers that work sample by sample, say nothing about a batch and do
not count: a model that skips layers, or repeats some, adds no others. Each pair is checked once,
and there are no more than `MOST` checks in all. Nothing is detected under compile, where a region
is one operation until Dynamo gives it up, nor in what is computed without a graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist

from workbench.parallel.checks.branches import nodes_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

OperationPair = tuple[str, str]
"""Two operations, where the second's result is an input of the first, with the dimensions they work
over."""
MOST = 5
"""How often the training comes back from the ranks because of new paths."""
_RANKS_OWN = ("_DDP", "RegisterPostBackward", "CompiledFunction")
_BY_ELEMENTS = frozenset(
    {
        "AccumulateGrad", "Add", "Sub", "Mul", "Div", "Neg", "Pow", "Exp", "Log", "Sqrt", "Rsqrt",
        "Abs", "Clamp", "Where", "MaskedFill", "Relu", "LeakyRelu", "Elu", "Gelu", "Silu", "Mish",
        "Tanh", "Sigmoid", "Softplus", "Hardtanh", "Hardswish", "Hardsigmoid", "T", "Transpose",
        "Permute", "View", "UnsafeView", "ReshapeAlias", "Alias", "Clone", "ToCopy",
        "Slice", "Select", "Unsqueeze", "Squeeze", "Expand", "Split", "Unbind", "Addmm",
        "Convolution", "NativeLayerNorm", "NativeGroupNorm", "NativeBatchNorm", "CudnnBatchNorm",
        "Embedding", "NativeDropout", "MaxPool2DWithIndices", "AvgPool2D",
    }
)  # fmt: skip


_OF_PLACES = ("Slice", "Select", "Split", "Unbind")
"""Operations that select from a dimension: over any other than the first they work sample by
sample."""


def paths_of(*outputs: torch.Tensor) -> set[OperationPair]:
    """Return the paths of one step's outputs and loss that may say something about a batch."""
    nodes = {node for one in outputs for node in nodes_below(one)}
    names = {node: _name(node) for node in nodes}
    found = {
        (names[node], names[after])
        for node in nodes
        if not names[node].startswith(_RANKS_OWN)
        for after in _next(node, names)
    }
    return {one for one in found if not all(map(_is_plain, one))}


def _next(node: Any, names: dict[Any, str]) -> Iterator[Any]:
    """Yield the inputs of an operation, skipping what ranks have put in between."""
    for after, _ in node.next_functions:
        if after is not None and names[after].startswith(_RANKS_OWN):
            yield from _next(after, names)
        elif after is not None:
            yield after


def _name(node: Any) -> str:
    """Return a node's operation, and the dimensions that it works over, where it has any."""
    over = getattr(node, "_saved_dim", None)
    if over is None:
        over = getattr(node, "_saved_dims", None)
    if not isinstance(over, (int, tuple, list)):
        return type(node).__name__
    dims = over if isinstance(over, (tuple, list)) else (over,)
    # torch stores a negative one as a large number
    shown = [str(one - 2**64 if one >= 2**63 else one) for one in cast("Iterable[int]", dims)]
    return f"{type(node).__name__} {','.join(shown)}"


def _is_plain(name: str) -> bool:
    """Whether an operation of this name works element by element, or sample by sample."""
    kind, _, dims = name.partition("Backward")
    if kind in _OF_PLACES and dims.partition(" ")[2] == "0":
        return False
    return kind in _BY_ELEMENTS


class ModelPaths:
    """The paths through the model that steps have taken.

    Args:
        known: the paths of steps before.
    """

    def __init__(self, known: AbstractSet[OperationPair]) -> None:
        self.known = set(known)
        self._has_begun = False

    def new(self, *outputs: torch.Tensor) -> bool:
        """Return whether a step has taken a new path; not for the first step, which was checked.

        Args:
            outputs: the model's outputs and the loss, with their graphs.
        """
        found = paths_of(*outputs) - self.known
        self.known |= found
        has_begun, self._has_begun = self._has_begun, True
        return bool(found) and has_begun

    def of_all(self) -> list[OperationPair]:
        """Return the paths that any rank has taken; every rank must call it."""
        of_ranks: list[set[OperationPair]] = [set()] * dist.get_world_size()
        dist.all_gather_object(of_ranks, self.known)
        return sorted(set().union(*of_ranks))
