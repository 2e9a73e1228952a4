"""What nodes keep alive for backward, and who else keeps it: pure functions over a record."""

from __future__ import annotations

import operator
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.module_rows import inside_module
from workbench.graph.wording import byte_size, plural
from workbench.records import STORAGE_KINDS, GraphNode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workbench.records import GraphRecord

KEPT_FOR_CHECKPOINT = "checkpointed input"
"""Among the names of saved tensors: what a region of non-reentrant checkpointing was given."""
KEPT_BY_POLICY = "kept by a policy"
"""And a result that it keeps, by the policy of selective checkpointing."""
_ACTIVATION = STORAGE_KINDS.index("activation")


@dataclass(frozen=True, kw_only=True)
class HeldStorage:
    """One storage that a node, or the nodes of a module, hold for backward."""

    storage: int
    """Row in the record's ``storage_*`` columns."""
    names: tuple[str, ...]
    """torch's names of the saved tensors that lie in it (``input``, ``result1``); of what an
    activation checkpoint keeps to compute them again, ``checkpointed input``, and of what its
    policy keeps so that it is not computed again, ``kept by a policy``."""
    shapes: tuple[str, ...]
    """Of each of ``names``, ``128×64×16×16``."""
    num_bytes: int
    """Of the whole storage, which may be larger than the saved tensors in it."""
    kind: str
    """One of `STORAGE_KINDS`."""
    others: tuple[GraphNode, ...]
    """The other nodes that hold it, in forward order; of a module, those outside it."""
    holder: str = "node"
    """Who was asked about: ``node`` or ``module``."""

    @property
    def freed_bytes(self) -> int:
        """Bytes that would be freed if this node, or all of this module, let go.

        None of a parameter, a buffer or an input, which live anyway, and none of a storage that
        another node holds. What the user's own variables hold is not known to a record.
        """
        return self.num_bytes if self.kind == "activation" and not self.others else 0

    def __str__(self) -> str:
        tensors = ", ".join(f"{n} {s}" for n, s in zip(self.names, self.shapes, strict=True))
        text = f"{tensors}: {byte_size(self.num_bytes)}, {self.kind}"
        if not self.others:
            return f"{text}, held by this {self.holder} alone"
        first = "; ".join(_told(node) for node in self.others[:3])
        more = f" and {len(self.others) - 3} more" if len(self.others) > 3 else ""
        return f"{text}, also held by {first}{more}"


def holders(record: GraphRecord, node: int | GraphNode | str) -> tuple[HeldStorage, ...]:
    """What ``node`` holds for backward, storage by storage, and which other nodes hold the same.

    Args:
        record: a captured graph.
        node: a row of ``record.nodes``, the node itself, or the qualified name of a module, which
            stands for all nodes in it.

    Returns:
        Storages in the order in which they were saved; empty for a node that saves nothing.

    Raises:
        IndexError: there is no such row.
        TypeError: ``node`` is none of these.
        ValueError: the graph has no node of such a module; the message lists close names.
    """
    is_module = isinstance(node, str)
    rows = np.flatnonzero(inside_module(record, node)) if is_module else [check_row(record, node)]
    own = set(map(int, rows))
    by_storage: dict[int, list[int]] = defaultdict(list)
    for hold in np.flatnonzero(np.isin(record.hold_node, rows)).tolist():
        by_storage[int(record.hold_storage[hold])].append(hold)
    users = _nodes_of(record, by_storage)
    return tuple(
        HeldStorage(
            storage=storage,
            names=tuple(record.strings[record.hold_name[hold]] for hold in holds),
            shapes=tuple(record.strings[record.hold_shape[hold]] for hold in holds),
            num_bytes=int(record.storage_bytes[storage]),
            kind=STORAGE_KINDS[record.storage_kind[storage]],
            others=tuple(GraphNode.of(record, row) for row in users[storage] if row not in own),
            holder="module" if is_module else "node",
        )
        for storage, holds in by_storage.items()
    )


def check_row(record: GraphRecord, node: int | GraphNode) -> int:
    """The row of ``node``.

    Raises:
        IndexError: there is no such row.
        TypeError: ``node`` is neither a row nor a node.
    """
    try:
        row = node.index if isinstance(node, GraphNode) else operator.index(node)
    except TypeError:
        raise TypeError(
            "expected a node of record.nodes, its row as an integer, or the qualified name of a "
            f"module as a string; got {node!r} ({type(node).__name__})"
        ) from None
    if not 0 <= row < len(record.node_type):
        raise IndexError(
            f"there is no node {row}: this graph has nodes 0 to {len(record.node_type) - 1}; see "
            "record.nodes"
        )
    return row


def freed_with(record: GraphRecord, rows: Iterable[int]) -> int:
    """Bytes that would be freed if all of ``rows`` let go of what they hold."""
    inside = np.zeros(len(record.node_type), dtype=bool)
    inside[list(rows)] = True
    only, _ = split_by_holder(record, inside)
    return int(record.storage_bytes[only].sum())


def split_by_holder(
    record: GraphRecord, inside: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Activation storages that only nodes ``inside`` hold, and those that others hold as well.

    Args:
        record: a captured graph.
        inside: one flag per node.

    Returns:
        Two flags per storage.
    """
    held_inside = np.zeros(len(record.storage_bytes), dtype=bool)
    held_outside = held_inside.copy()
    is_inside = inside[record.hold_node]
    held_inside[record.hold_storage[is_inside]] = True
    held_outside[record.hold_storage[~is_inside]] = True
    held_inside &= record.storage_kind == _ACTIVATION
    return held_inside & ~held_outside, held_inside & held_outside


def describe_holders(record: GraphRecord, node: int | GraphNode) -> str:
    """`holders` as lines of text, with what would really be freed."""
    held = holders(record, node)
    one = GraphNode.of(record, check_row(record, node))
    if not held:
        return f"{_told(one)} saves nothing for backward."
    freed = sum(storage.freed_bytes for storage in held)
    head = f"{_told(one)} holds {plural(len(held), 'storage')}; {byte_size(freed)} would be freed:"
    return "\n".join([head, *(f"  {storage}" for storage in held)])


def _nodes_of(record: GraphRecord, storages: Iterable[int]) -> dict[int, list[int]]:
    """Storage -> the rows that hold it, ascending."""
    wanted = np.isin(record.hold_storage, list(storages))
    found: dict[int, list[int]] = defaultdict(list)
    for storage, row in zip(
        record.hold_storage[wanted].tolist(), record.hold_node[wanted].tolist(), strict=True
    ):
        if not found[storage] or found[storage][-1] != row:
            found[storage].append(row)
    return found


def _told(node: GraphNode) -> str:
    where = f" in `{node.module}`" if node.module else ""
    line = f" ({node.source.label})" if node.source is not None else ""
    return f"`{node.op}`{where}{line}"
