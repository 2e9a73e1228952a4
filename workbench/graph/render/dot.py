"""A graph record as DOT text for Graphviz: every operation, a cluster for each module.

Parameters are folded into the operations that use them, one line each. Names come from the user's
code and may contain anything, so each is escaped and cut to one line.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.core.number_format import byte_size, heading, plural, short
from workbench.graph.questions.compute_dtype import COLOURS as COLOURS_OF_TYPES
from workbench.graph.questions.compute_dtype import computed_in, fill_of, short_type
from workbench.graph.render.diff_style import ADDED, COLOURS, REMOVED, SAME, SIGNS
from workbench.records import NODE_KINDS, GraphDiff

if TYPE_CHECKING:
    from workbench.records import GraphRecord

_WIDTH = 60
"""Maximum number of characters of a name."""


def graph_dot(record: GraphRecord) -> str:
    """Write ``record`` as one ``digraph``, with data flowing down.

    Graphviz lays out up to about a thousand operations in seconds; beyond that, try ``sfdp`` or
    ``dot -Gnslimit=2``. For a `GraphDiff` it is the union: what was removed is dashed, what was
    added bold; otherwise nodes are filled by the dtype that their operation computes in.
    """
    return "\n".join(_Writer(record).lines()) + "\n"


class _Writer:
    def __init__(self, record: GraphRecord) -> None:
        self.record = record
        self.computed = [] if isinstance(record, GraphDiff) else computed_in(record)
        self.children: dict[int, list[int]] = defaultdict(list)
        self.is_folded = _folded(record)
        used = _used(record, self.is_folded)
        for index, module in enumerate(record.modules):
            if index in used:
                self.children[module.parent].append(index)
        self.rows_of: dict[int, list[int]] = defaultdict(list)
        for row, module in enumerate(record.node_module.tolist()):
            self.rows_of[module].append(row)
        self.folded_into: dict[int, list[int]] = defaultdict(list)
        self.num_inner = np.bincount(record.inner_node, minlength=len(record.node_type))
        for maker, user in zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True):
            if self.is_folded[maker]:
                self.folded_into[user].append(maker)

    def lines(self) -> Iterator[str]:
        """The lines of the file."""
        yield f"digraph {_quoted([heading(self.record)])} {{"
        yield f'  label={_quoted([heading(self.record)])}; labelloc=t; fontname="Helvetica";'
        yield '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="Helvetica"];'
        yield '  edge [color="#888888"];'
        yield from self._modules()
        yield from self._edges()
        yield "}"

    def _modules(self) -> Iterator[str]:
        """Nested clusters, made iteratively: a module tree may be deep."""
        pending: list[tuple[int, int, bool]] = [(m, 1, False) for m in self.children[-1][::-1]]
        while pending:
            module, depth, is_done = pending.pop()
            indent = "  " * depth
            if is_done:
                yield f"{indent}}}"
                continue
            yield f"{indent}subgraph cluster_{module} {{"
            yield f"{indent}  label={_quoted([self._module_label(module)])}; labeljust=l;"
            yield f'{indent}  style=rounded; color="#aaaaaa"; fontsize=12;'
            for row in self.rows_of[module]:
                if not self.is_folded[row]:
                    yield f"{indent}  n{row} [{self._attributes(row)}];"
            pending.append((module, depth, True))
            pending += [(child, depth + 1, False) for child in self.children[module][::-1]]

    def _module_label(self, module: int) -> str:
        entry = self.record.modules[module]
        return " · ".join(filter(None, (short(entry.path, _WIDTH), short(entry.cls, _WIDTH))))

    def _attributes(self, row: int) -> str:
        record = self.record
        text = record.strings
        saved = int(record.node_saved_bytes[row])
        size = f", {byte_size(saved)} saved" if saved else ""
        sign = SIGNS.get(_state(record, row), "")
        op = text[record.node_name[row]] or text[record.node_op[row]]
        dtype = text[record.node_dtype[row]]
        lines = [
            f"{sign} {short(op, _WIDTH)}".strip(),
            f"{text[record.node_shape[row]]} {dtype}{size}".strip(),
            *self._computed_line(row),
            *self._inner_line(row),
            *(self._folded_line(leaf) for leaf in self.folded_into[row]),
        ]
        source = int(record.node_source[row])
        tip = record.sources[source].label if source >= 0 else text[record.node_type[row]]
        return f"label={_quoted(lines)}, tooltip={_quoted([tip])}{self._fill(row)}"

    def _computed_line(self, row: int) -> list[str]:
        """The dtype it computes in, if that is not simply the dtype of its output."""
        if not self.computed or self._is_leaf(row):
            return []
        computed, dtype = self.computed[row], int(self.record.node_dtype[row])
        same = computed == self.record.strings[dtype]
        return [] if same else [f"computed in {short_type(computed)}"]

    def _is_leaf(self, row: int) -> bool:
        return NODE_KINDS[self.record.node_kind[row]] in ("parameter", "input")

    def _fill(self, row: int) -> str:
        if not self.computed:
            return _style(_state(self.record, row))
        fill = fill_of(self.computed[row])
        plain = fill == COLOURS_OF_TYPES["float32"] or self._is_leaf(row)
        return "" if plain else f', fillcolor="{fill}"'

    def _inner_line(self, row: int) -> list[str]:
        count = int(self.num_inner[row])
        return [f"{plural(count, 'backward operation')} inside"] if count else []

    def _folded_line(self, leaf: int) -> str:
        text = self.record.strings
        name = text[self.record.node_name[leaf]].rpartition(".")[2]
        shape = text[self.record.node_shape[leaf]]
        return f"{SIGNS.get(_state(self.record, leaf), '●')} {short(name, _WIDTH)} {shape}"

    def _edges(self) -> Iterator[str]:
        record = self.record
        largest = max(1, int(record.edge_bytes.max(initial=1)))
        columns = (record.edge_from, record.edge_to, record.edge_bytes)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for edge, (maker, user, num_bytes) in enumerate(rows):
            if self.is_folded[maker]:
                continue
            width = 1 + 4 * math.sqrt(max(num_bytes, 0) / largest)
            state = int(record.edge_state[edge]) if isinstance(record, GraphDiff) else SAME
            style = _style(state) if state in (REMOVED, ADDED) else ""
            yield f"  n{maker} -> n{user} [penwidth={width:.1f}{style}];"


def _used(record: GraphRecord, is_folded: list[bool]) -> set[int]:
    """The modules in which a node is drawn, and all modules around them."""
    used: set[int] = set()
    for owner in np.unique(record.node_module[~np.array(is_folded, dtype=bool)]).tolist():
        module = owner
        while module >= 0 and module not in used:
            used.add(module)
            module = record.modules[module].parent
    return used


def _folded(record: GraphRecord) -> list[bool]:
    """Which rows are parameters that some operation uses."""
    used = set(record.edge_from.tolist())
    return [kind == 1 and row in used for row, kind in enumerate(record.node_kind.tolist())]


def _state(record: GraphRecord, row: int) -> int:
    return int(record.node_state[row]) if isinstance(record, GraphDiff) else SAME


def _style(state: int) -> str:
    if state == SAME:
        return ""
    style = "dashed" if state == REMOVED else "bold"
    return f', style="{style}", color="{COLOURS[state]}"'


def _quoted(lines: list[str]) -> str:
    """A quoted DOT string of ``lines``."""
    escaped = (short(line, 200).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
