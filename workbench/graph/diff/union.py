"""Two aligned graphs as one: rows, edges and tables of the union.

Rows are in a forward order of the union, in which a row that only B has follows the row that it
followed in B.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.graph.capture.call_columns import Table
from workbench.graph.core.topology import Ints, topological_order
from workbench.records import GraphModule, SourceLine

if TYPE_CHECKING:
    from workbench.records import GraphRecord


@dataclass(frozen=True)
class Union:
    """Positions of all parts of ``a`` and ``b`` in their union."""

    a: GraphRecord
    b: GraphRecord
    node_a: Ints
    """Per row of the union, its row in A; -1 if A has none."""
    node_b: Ints
    row_of_a: Ints
    """Per row of A its row in the union."""
    row_of_b: Ints
    edges: Edges
    modules: tuple[GraphModule, ...]
    module_of_a: Ints
    """Per module of A its row in ``modules``."""
    module_of_b: Ints
    strings: tuple[str, ...]
    """A's strings, then those that B adds: A's indices stay valid."""
    text_of_b: Ints
    sources: tuple[SourceLine, ...]
    """Likewise for the source lines."""
    source_of_b: Ints
    """One entry longer than B's table: -1 stays -1."""

    @classmethod
    def of(cls, a: GraphRecord, b: GraphRecord, partner: Ints) -> Union:
        """Unite ``a`` and ``b``; ``partner`` is the row of ``b`` for each row of ``a``, else -1.

        With the pairs merged the graph must have no cycle; `workbench.graph.diff.align.align`
        returns such pairs.
        """
        only_b = np.setdiff1d(np.arange(len(b.node_type)), partner)
        node_a = np.concatenate([np.arange(len(partner)), np.full(len(only_b), -1)])
        node_b = np.concatenate([partner, only_b])
        row_of_b = np.empty(len(b.node_type), dtype=np.int64)
        in_b = np.flatnonzero(node_b >= 0)
        row_of_b[node_b[in_b]] = in_b
        edges = _merged_edges(a, b, row_of_b)
        order = topological_order(_order_keys(node_a, row_of_b), edges.start, edges.end)
        new_row = np.empty_like(order)
        new_row[order] = np.arange(len(order))
        modules, module_of_a, module_of_b = merged_modules(a.modules, b.modules)
        strings, sources = Table(a.strings), Table(a.sources)
        return cls(
            a=a,
            b=b,
            node_a=node_a[order],
            node_b=node_b[order],
            row_of_a=new_row[: len(partner)],
            row_of_b=new_row[row_of_b],
            edges=edges.renumbered(new_row),
            modules=modules,
            module_of_a=module_of_a,
            module_of_b=module_of_b,
            text_of_b=strings.rows(b.strings).astype(np.int64),
            source_of_b=np.append(sources.rows(b.sources), -1).astype(np.int64),
            strings=tuple(strings.items),
            sources=tuple(sources.items),
        )

    def pick(self, of_a: npt.NDArray[Any], of_b: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Per row A's value, or B's where A has no such row."""
        found = np.empty(len(self.node_a), dtype=of_a.dtype)
        in_a = self.node_a >= 0
        found[in_a] = of_a[self.node_a[in_a]]
        found[~in_a] = of_b[self.node_b[~in_a]]
        return found

    def pick_b(self, of_a: npt.NDArray[Any], of_b: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Per row B's value, or A's where B has no such row."""
        found = self.pick(of_a, of_b)
        in_b = self.node_b >= 0
        found[in_b] = of_b[self.node_b[in_b]]
        return found

    def values_of_b(self, of_b: npt.NDArray[Any], missing: float) -> npt.NDArray[Any]:
        """Per row B's value, or ``missing`` where B has no such row."""
        found = np.full(len(self.node_b), missing, dtype=of_b.dtype)
        in_b = self.node_b >= 0
        found[in_b] = of_b[self.node_b[in_b]]
        return found


@dataclass(frozen=True)
class Edges:
    """Edges of the union; bytes are -1 on the side that lacks the edge."""

    start: Ints
    end: Ints
    bytes_a: Ints
    bytes_b: Ints

    def renumbered(self, new_row: Ints) -> Edges:
        """The same edges with new rows, sorted by end."""
        start, end = new_row[self.start], new_row[self.end]
        order = np.lexsort((start, end))
        return Edges(start[order], end[order], self.bytes_a[order], self.bytes_b[order])


def _merged_edges(a: GraphRecord, b: GraphRecord, row_of_b: Ints) -> Edges:
    """Edges of A, then those that only B has. Each of several parallel edges is matched once."""
    start, end = a.edge_from.tolist(), a.edge_to.tolist()
    bytes_a, bytes_b = a.edge_bytes.tolist(), [-1] * len(a.edge_from)
    unmatched: dict[tuple[int, int], list[int]] = defaultdict(list)
    for edge in range(len(start) - 1, -1, -1):
        unmatched[start[edge], end[edge]].append(edge)
    edges_of_b = zip(
        row_of_b[b.edge_from].tolist(),
        row_of_b[b.edge_to].tolist(),
        b.edge_bytes.tolist(),
        strict=True,
    )
    for maker, user, num_bytes in edges_of_b:
        same = unmatched.get((maker, user))
        if same:
            bytes_b[same.pop()] = num_bytes
            continue
        start.append(maker)
        end.append(user)
        bytes_a.append(-1)
        bytes_b.append(num_bytes)
    columns = (np.array(column, dtype=np.int64) for column in (start, end, bytes_a, bytes_b))
    return Edges(*columns)


def _order_keys(node_a: Ints, row_of_b: Ints) -> Ints:
    """A's order; a row only in B comes after the last row before it in B that A has too."""
    width = len(row_of_b) + 2
    keys = node_a * width
    last = -1 if (node_a[row_of_b] >= 0).any() else len(node_a) * width
    for place, row in enumerate(row_of_b.tolist()):
        if node_a[row] >= 0:
            last = max(last, int(keys[row]))
        else:
            keys[row] = last + 1 + place
    return keys


def merged_modules(
    a: Sequence[GraphModule], b: Sequence[GraphModule]
) -> tuple[tuple[GraphModule, ...], Ints, Ints]:
    """Merge two tables of modules into one, parents first; also returns the new rows of each.

    A module that only B has follows the sibling that it follows in B. If one path has two classes,
    both are named.
    """
    found: dict[Hashable, GraphModule] = {}
    parent_of: dict[Hashable, Hashable] = {}
    children: dict[Hashable, list[Hashable]] = defaultdict(list)
    for modules in (a, b):
        before: dict[Hashable, Hashable] = {}
        for module in modules:
            key = _key(module)
            parent = _key(modules[module.parent]) if module.parent >= 0 else None
            if key not in found:
                found[key], parent_of[key] = module, parent
                siblings = children[parent]
                previous = before.get(parent)
                at = siblings.index(previous) + 1 if previous in siblings else 0
                siblings.insert(len(siblings) if modules is a else at, key)
            elif found[key].cls != module.cls:
                cls = f"{found[key].cls} → {module.cls}"
                found[key] = dataclasses.replace(found[key], cls=cls)
            before[parent] = key
    rows: dict[Hashable, int] = {None: -1}
    pending = children[None][::-1]
    while pending:
        key = pending.pop()
        rows[key] = len(rows) - 1
        pending += children[key][::-1]
    table = tuple(
        dataclasses.replace(found[key], parent=rows[parent_of[key]])
        for key in rows
        if key is not None
    )
    row_lists = ([rows[_key(module)] for module in modules] for modules in (a, b))
    of_a, of_b = (np.array(row_list, dtype=np.int64) for row_list in row_lists)
    return table, of_a, of_b


def _key(module: GraphModule) -> Hashable:
    return module.path, module.parent < 0
