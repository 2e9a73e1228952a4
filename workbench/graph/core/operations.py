"""Grouping of backward nodes into operations: what a person wrote as one call.

Counterpart of ``extensions/views/src/graph/fold.ts``, so that pictures and the interactive view
count alike: one operation per Python call; a node that merely passes a parameter on (the transpose
in front of a matrix product, a cast) belongs to the operation that uses it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from workbench.graph.core.topology import topological_order
from workbench.records import NODE_KINDS

if TYPE_CHECKING:
    from workbench.records import GraphRecord

_PARAMETER, _COMPILED = NODE_KINDS.index("parameter"), NODE_KINDS.index("compiled")
_LEAVES = (_PARAMETER, NODE_KINDS.index("input"))
VIEWS = frozenset(
    f"{name}Backward0"
    for name in (
        "Alias",
        "AsStrided",
        "Chunk",
        "Diagonal",
        "Expand",
        "Narrow",
        "Permute",
        "ReshapeAlias",
        "Select",
        "Slice",
        "Split",
        "SplitWithSizes",
        "Squeeze",
        "T",
        "Transpose",
        "Unbind",
        "Unfold",
        "UnsafeView",
        "Unsqueeze",
        "View",
    )
)
"""Operations whose output shares the storage of their input."""
_COPY = re.compile("(Clone|Mt|Squeeze|ToCopy)Backward")
"""Nodes besides views that pass on their input in another order, dtype or place."""
_NONE, _MANY = -1, -2
_MOST_PASSES = 4
"""Maximum number of folding passes; a cast in front of a transpose takes two."""
_known: WeakKeyDictionary[GraphRecord, tuple[int, ...]] = WeakKeyDictionary()
"""Of records that are still there: showing one asks a dozen times."""


def operations_of(record: GraphRecord) -> tuple[int, ...]:
    """Operation of every row, numbered in the order of their first rows; -1 for leaves."""
    found = _known.get(record)
    if found is None:
        found = _known[record] = tuple(_operations_of(record))
    return found


def _operations_of(record: GraphRecord) -> list[int]:
    found = _folded(record, _by_call(record))
    return _renumbered(found if _is_acyclic(record, found) else _by_call(record, together=False))


def num_operations(record: GraphRecord) -> int:
    """Number of operations."""
    return max(operations_of(record), default=-1) + 1


def _by_call(record: GraphRecord, *, together: bool = True) -> list[int]:
    """One operation per Python call and module, or one per node."""
    kinds, calls = record.node_kind.tolist(), record.node_call.tolist()
    # a call of compiled code may make several nodes, each with its own operations inside
    compiled = {call for call, kind in zip(calls, kinds, strict=True) if kind == _COMPILED}
    seen: dict[tuple[int, int], int] = {}
    owner: list[int] = []
    rows = zip(kinds, calls, record.node_module.tolist(), strict=True)
    for row, (kind, call, module) in enumerate(rows):
        if kind in _LEAVES:
            owner.append(_NONE)
        elif together and call >= 0 and call not in compiled:
            owner.append(seen.setdefault((call, module), row))
        else:
            owner.append(row)
    return owner


def _folded(record: GraphRecord, owner: list[int]) -> list[int]:
    for _ in range(_MOST_PASSES):
        before, owner = owner, _folded_once(record, owner)
        if owner == before:
            break
    return owner


def _folded_once(record: GraphRecord, owner: list[int]) -> list[int]:
    types = [record.strings[name] for name in record.node_type.tolist()]
    plain = dict.fromkeys(owner, True)
    for row, group in enumerate(owner):
        plain[group] = plain[group] and (types[row] in VIEWS or bool(_COPY.match(types[row])))
    consumer = dict.fromkeys(owner, _NONE)
    fed: set[int] = set()
    for row, user in zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True):
        start, end = owner[row], owner[user]
        if end < 0 or start == end:
            continue
        if start >= 0:
            plain[end] = False
            consumer[start] = end if consumer[start] in (_NONE, end) else _MANY
        elif record.node_kind[row] == _PARAMETER:
            fed.add(end)
    module = record.node_module
    moved = {
        group: to
        for group, to in consumer.items()
        if group >= 0 and to >= 0 and plain[group] and group in fed
        and module[group] == module[to] and owner[record.root] != group
    }  # fmt: skip
    return [moved.get(group, group) for group in owner]


def _is_acyclic(record: GraphRecord, owner: list[int]) -> bool:
    """Whether no two operations feed each other."""
    groups = np.array(_renumbered(owner), dtype=np.int64)
    start, end = groups[record.edge_from], groups[record.edge_to]
    between = (start >= 0) & (end >= 0) & (start != end)
    size = int(groups.max(initial=-1)) + 1
    order = topological_order(np.zeros(size, np.int64), start[between], end[between])
    return len(order) == size


def _renumbered(owner: list[int]) -> list[int]:
    number: dict[int, int] = {_NONE: _NONE}
    return [number.setdefault(group, len(number) - 1) for group in owner]
