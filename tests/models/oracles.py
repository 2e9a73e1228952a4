"""What a capture is held against. Nothing here shares code or method with ``workbench.graph``.

The walk goes depth first and names nodes by what torch says of them; owners come from the values
that enter and leave each module; bytes come from torch's own saved-tensor hooks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from workbench.records import GraphRecord

Node = torch.autograd.graph.Node
LEAF = "AccumulateGrad"


@dataclass
class Expected:
    """A multiset of nodes and one of edges, by labels that survive the graph."""

    nodes: Counter[Hashable] = field(default_factory=Counter)
    edges: Counter[Hashable] = field(default_factory=Counter)


def walk_depth_first(root: Node, leaf_names: dict[int, str]) -> Expected:
    """Every node and edge above ``root``; a leaf goes by its tensor's name.

    Args:
        root: the loss's ``grad_fn``.
        leaf_names: ``id`` of a leaf tensor -> its name.
    """
    found = Expected()
    seen = {root}
    pending = [root]
    while pending:
        node = pending.pop()
        label = node_label(node, leaf_names)
        found.nodes[label] += 1
        for maker, slot in node.next_functions:
            if maker is None:
                continue
            edge = (node_label(maker, leaf_names), label, output_bytes(maker, slot))
            found.edges[edge] += 1
            if maker not in seen:
                seen.add(maker)
                pending.append(maker)
    return found


def node_label(node: Node, leaf_names: dict[int, str]) -> Hashable:
    variable = getattr(node, "variable", None)
    if node.name().endswith(LEAF):
        return ("leaf", leaf_names[id(variable)])
    return (type(node).__name__, node._sequence_nr(), output_shape(node))


def output_shape(node: Node) -> tuple[int, ...] | None:
    metadata = node._input_metadata
    return tuple(metadata[0].shape) if metadata else None


def output_bytes(node: Node, slot: int) -> int:
    metadata = node._input_metadata[slot]
    return torch.Size(metadata.shape).numel() * metadata.dtype.itemsize


def recorded(record: GraphRecord) -> Expected:
    """The same multisets, read from the columns of a record."""
    text = record.strings

    def label(row: int) -> Hashable:
        if record.node_sequence[row] < 0:
            return ("leaf", text[record.node_name[row]])
        shape = text[record.node_shape[row]]
        sizes = () if shape == "scalar" else tuple(map(int, shape.split("×")))
        return (text[record.node_type[row]], int(record.node_sequence[row]), sizes)

    labels = [label(row) for row in range(len(record.node_type))]
    edges = zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True)
    flows = record.edge_bytes.tolist()
    return Expected(
        nodes=Counter(labels),
        edges=Counter((labels[a], labels[b], n) for (a, b), n in zip(edges, flows, strict=True)),
    )


def names_of(model: nn.Module) -> dict[int, str]:
    """``id`` -> name of every parameter; a shared one goes by its first."""
    return {id(parameter): name for name, parameter in model.named_parameters()}


class OwnerOracle:
    """Owner of a node: the innermost module between whose inputs and outputs it lies.

    Breadth first from what a module returns, up to what it was given (as torchtitan does it:
    pytorch/torchtitan#3190). A module inside ends before the one around it, so the first answer
    stands. Look at `owner` after the forward.
    """

    def __init__(self, model: nn.Module) -> None:
        self.owner: dict[int, str] = {}
        """Sequence number -> module path."""
        self._entered: list[set[Node]] = []
        """An in-place module changes who made its input: ask before it runs."""
        self._handles = []
        for path, module in model.named_modules():
            self._handles += [
                module.register_forward_pre_hook(self._enter, with_kwargs=True),
                module.register_forward_hook(self._leave(path)),
            ]

    def detach(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def _enter(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        self._entered.append(set(makers_of((args, kwargs))))

    def _leave(self, path: str) -> Callable[..., None]:
        def leave(_module: nn.Module, _args: Any, output: Any) -> None:
            seen = self._entered.pop()
            level = [node for node in makers_of(output) if node not in seen]
            while level:
                seen.update(level)
                for node in level:
                    if not node.name().endswith(LEAF):
                        self.owner.setdefault(node._sequence_nr(), path)
                above = (maker for node in level for maker, _ in node.next_functions)
                level = list({node for node in above if node is not None and node not in seen})

        return leave


def makers_of(tree: Any) -> list[Node]:
    """``grad_fn`` of every tensor in a tree of values."""
    leaves: Iterable[Any] = _pytree.tree_leaves(tree)
    tensors = (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    return [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]


@dataclass(frozen=True)
class Saved:
    """Bytes of distinct storages by kind, and the sizes of the activations among them."""

    parameter: int
    buffer: int
    input: int
    activation: int
    sizes: tuple[int, ...]


def saved_by_hooks(
    forward: Callable[[], torch.Tensor], model: nn.Module, inputs: Iterable[torch.Tensor]
) -> Saved:
    """What torch hands to a pack hook while ``forward`` runs, each storage once."""
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)  # kept, so that no storage's identity is given to another
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward()
    kinds: dict[int, str] = {}
    for kind, tensors in (
        ("input", inputs),
        ("buffer", model.buffers()),
        ("parameter", model.parameters()),
    ):
        kinds |= dict.fromkeys((storage_of(tensor)[0] for tensor in tensors), kind)
    sizes = dict(map(storage_of, packed))
    by_kind: dict[str, list[int]] = {}
    for key, size in sizes.items():
        by_kind.setdefault(kinds.get(key, "activation"), []).append(size)
    del loss
    held = {kind: sum(by_kind.get(kind, [])) for kind in ("parameter", "buffer", "input")}
    activations = sorted(by_kind.get("activation", []))
    return Saved(**held, activation=sum(activations), sizes=tuple(activations))


def storage_of(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage._cdata, storage.nbytes()
