"""Conversion of a graph, from the ``grad_fn`` of its loss, to plain columns.

The walk is iterative (a recurrent network's graph is tens of thousands of nodes deep) and keeps
every node's Python wrapper until the columns are made, because an identity is only stable while its
wrapper lives. The result holds numbers and strings only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.graph.core.deep_graph_release import protect
from workbench.graph.core.number_format import plural
from workbench.graph.core.topology import Ints, topological_order
from workbench.torch_private.autograd import node_sequence, node_type, output_metadata
from workbench.torch_private.tensors import known_size, output_sizes

if TYPE_CHECKING:
    from torch.autograd.graph import Node


@dataclass(frozen=True)
class Walk:
    """The live nodes of a graph in row order, and its edges in data direction.

    Short-lived by design: it keeps the user's activations alive.
    """

    nodes: list[Node]
    sequence: Ints
    """Sequence number per row, -1 for leaves."""
    edge_from: Ints
    edge_to: Ints
    edge_output: Ints
    """Which forward output of ``edge_from`` flowed along the edge."""


@dataclass
class Outputs:
    """Shapes, dtypes and sizes of what each node's forward returned."""

    shape: list[str]
    dtype: list[str]
    num_bytes: list[tuple[int, ...]]
    """Per row, bytes of every output; 0 where they are not known."""
    device: list[str]
    num_unknown: int = 0
    """Number of nodes with an output of unknown size."""

    def notes(self) -> list[str]:
        """What is not known about the outputs, in a sentence."""
        if not self.num_unknown:
            return []
        return [
            f"{plural(self.num_unknown, 'node')} returned a tensor whose size torch does not "
            "report (a nested tensor with ragged rows, for example); its output counts as 0 bytes."
        ]


def walk(root: Node) -> Walk:
    """Every node reachable from ``root`` through ``next_functions``, rows in forward order."""
    nodes: list[Node] = [root]
    index: dict[Node, int] = {root: 0}
    makers: list[int] = []
    users: list[int] = []
    outputs: list[int] = []
    for user, node in enumerate(nodes):  # grows while it is read: breadth first
        for maker, output in node.next_functions:
            if maker is None:  # an input that needs no gradient
                continue
            row = index.setdefault(maker, len(nodes))
            if row == len(nodes):
                nodes.append(maker)
            makers.append(row)
            users.append(user)
            outputs.append(output)
    sequence = np.array([node_sequence(node) for node in nodes], dtype=np.int64)
    edge_from = np.array(makers, dtype=np.int64)
    edge_to = np.array(users, dtype=np.int64)
    order = _forward_order(sequence, edge_from, edge_to)
    row_of = np.empty_like(order)
    row_of[order] = np.arange(len(order))
    edge_from, edge_to = row_of[edge_from], row_of[edge_to]
    by_user = np.argsort(edge_to, kind="stable")
    in_order = [nodes[i] for i in order]
    protect(in_order)
    return Walk(
        nodes=in_order,
        sequence=sequence[order],
        edge_from=edge_from[by_user],
        edge_to=edge_to[by_user],
        edge_output=np.array(outputs, dtype=np.int64)[by_user],
    )


def _forward_order(sequence: Ints, edge_from: Ints, edge_to: Ints) -> Ints:
    """Topological order, by sequence number if that is valid; a leaf comes before its first user.

    Sequence order can break topology: numbers are counted per thread, and an in-place operation on
    a view makes torch replace the view's node by a later one.
    """
    key = _order_keys(sequence, edge_from, edge_to)
    order = np.argsort(key, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    if np.all(position[edge_from] < position[edge_to]):
        return order
    return topological_order(key, edge_from, edge_to)


def _order_keys(sequence: Ints, edge_from: Ints, edge_to: Ints) -> Ints:
    key = sequence * 2
    leaves = sequence < 0
    first_use = np.full(len(sequence), np.iinfo(np.int64).max // 4, dtype=np.int64)
    np.minimum.at(first_use, edge_from, sequence[edge_to])
    key[leaves] = first_use[leaves] * 2 - 1
    return key


def read_outputs(nodes: Sequence[Node]) -> Outputs:
    """Shape, dtype, device and bytes of the forward outputs of every node."""
    result = Outputs(shape=[], dtype=[], num_bytes=[], device=[])
    names: dict[Any, str] = {}
    for node in nodes:
        metadata = output_metadata(node)
        sizes = [output_sizes(one) for one in metadata]
        first = metadata[0] if metadata else None
        result.shape.append(shape_text(sizes[0]) if sizes else "")
        result.dtype.append(_cached_name(names, getattr(first, "dtype", "")))
        result.device.append(_cached_name(names, getattr(first, "device", "")))
        num_bytes = list(map(_num_bytes, metadata, sizes))
        result.num_bytes.append(tuple(size or 0 for size in num_bytes))
        result.num_unknown += None in num_bytes
    return result


def _cached_name(names: dict[Any, str], value: Any) -> str:
    found = names.get(value)
    if found is None:
        found = names[value] = str(value).removeprefix("torch.")
    return found


def shape_text(shape: tuple[Any, ...] | None) -> str:
    """``8×3×224×224``, ``8×*×224`` with ragged rows; ``nested`` if torch reports no sizes."""
    if shape is None:
        return "nested"
    try:
        return _shape_text(shape)
    except TypeError:  # a size that is not known yet has no hash
        return _shape_text.__wrapped__(shape)


@lru_cache(maxsize=1024)
def _shape_text(shape: tuple[Any, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _num_bytes(metadata: Any, sizes: Sequence[Any] | None) -> int | None:
    """Bytes of an output; None if a size is not known."""
    if sizes is None:
        return None
    found: int = metadata.dtype.itemsize
    for size in sizes:
        known = known_size(size)
        if known is None:
            return None
        found *= known
    return found


def edge_bytes(graph: Walk, outputs: Outputs) -> Ints:
    """Bytes of the value that flowed along each edge."""
    found = np.zeros(len(graph.edge_from), dtype=np.int64)
    rows = zip(graph.edge_from.tolist(), graph.edge_output.tolist(), strict=True)
    for edge, (maker, output) in enumerate(rows):
        sizes = outputs.num_bytes[maker]
        found[edge] = sizes[output] if output < len(sizes) else 0
    return found


def node_types(nodes: Sequence[Node]) -> list[str]:
    """Type name of every node."""
    return [node_type(node) for node in nodes]
