"""Ways through a model that no step on ranks has taken before, seen by the graph of its outputs.

Whether a step can be divided among ranks is found out of a first batch
(`workbench.parallel.checks.batch_sums`). A model may begin later to do what cannot: a mean over the
batch is taken off after a warm-up, say. Then the graph has an operation where there was none. The
ranks give up that step and come home; it is computed in one process, where the very batch is
compared as a whole and in parts, and new ranks start with what was found.

*What is new*: a pair of operations that follow each other as in no step before; a sum over other
dimensions is another operation, and so is what takes samples by their place. Pairs of operations
that go element by element, or by layers that go sample by sample, say nothing of a batch and do not
count: a model that leaves layers out, or repeats some, comes to no others. Each pair is looked at
once, and no more than `MOST` times in all. Nothing is seen under compile, where a region is one
operation until Dynamo gives it up, nor of what is computed without a graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist

from workbench.parallel.checks.branches import nodes_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

Way = tuple[str, str]
"""Two operations, of which the second's result went into the first, and what they go over."""
MOST = 5
"""Times that ranks come home for new ones."""
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
"""Take some of a dimension: of another than the first they go sample by sample."""


def ways_of(*outputs: torch.Tensor) -> set[Way]:
    """Those of one step that may say something of a batch; of its outputs and its loss."""
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
    """What went into an operation, past what ranks have put between."""
    for after, _ in node.next_functions:
        if after is not None and names[after].startswith(_RANKS_OWN):
            yield from _next(after, names)
        elif after is not None:
            yield after


def _name(node: Any) -> str:
    """Its operation, and the dimensions that this goes over, where it has any."""
    over = getattr(node, "_saved_dim", None)
    if over is None:
        over = getattr(node, "_saved_dims", None)
    if not isinstance(over, (int, tuple, list)):
        return type(node).__name__
    dims = over if isinstance(over, (tuple, list)) else (over,)
    # a negative one is kept as a large number
    told = [str(one - 2**64 if one >= 2**63 else one) for one in cast("Iterable[int]", dims)]
    return f"{type(node).__name__} {','.join(told)}"


def _is_plain(name: str) -> bool:
    """Whether an operation of this name goes element by element, or sample by sample."""
    kind, _, dims = name.partition("Backward")
    if kind in _OF_PLACES and dims.partition(" ")[2] == "0":
        return False
    return kind in _BY_ELEMENTS


class Ways:
    """The ways that steps have taken.

    Args:
        known: of steps before.
    """

    def __init__(self, known: AbstractSet[Way]) -> None:
        self.known = set(known)
        self._has_begun = False

    def new(self, *outputs: torch.Tensor) -> bool:
        """Whether a step has taken one that none did; from the first one, which was looked at, on.

        Args:
            outputs: the model's and the loss, with their graphs.
        """
        found = ways_of(*outputs) - self.known
        self.known |= found
        has_begun, self._has_begun = self._has_begun, True
        return bool(found) and has_begun

    def of_all(self) -> list[Way]:
        """Those that any rank has taken; all call it together."""
        everyones: list[set[Way]] = [set()] * dist.get_world_size()
        dist.all_gather_object(everyones, self.known)
        return sorted(set().union(*everyones))
