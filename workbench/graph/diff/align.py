"""Matching of the nodes of one capture with the nodes of another.

Nodes are never compared by identity or by number: both change between two steps. What stays is
where an operation happens: its module path, the operation, its line, and what it is computed from.
So the Python calls of each module are compared as a sequence, in rounds from strict to lenient:

1. same operation, same line, inputs from the same modules and parameters;
2. same operation and line, computed from the same operations found so far (two calls on one line of
   a loop over outputs are distinguished by what leads to them);
3. same operation and line;
4. same operation, where the line itself was edited between the captures;
5. same operation, where the line is not in the module's own code: it is in the script that computes
   the loss (whose second capture is made on another line), or in the code that calls a torch module
   (two branches may call the same layer).

A later round only fills the gaps left by earlier ones, so order is kept within a module, and a loop
that ran longer has its last iterations left over. Inside a matched call, nodes are matched by their
type: for a call under autocast the casts are left over. Leaves are matched by name. Modules that
changed places would make the union of both graphs cyclic; of these only pairs in the same order are
kept.

If one capture has no calls and lines (it is of a loss alone, `names_less`), its
modules are an estimate too. Then every node is a call of its own, all calls are one sequence, and
the same rounds use type and shape and what a node is computed from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from workbench.graph.core.model_names import is_of_torch
from workbench.graph.core.topology import Ints, rows_near_cycles
from workbench.graph.diff.lcs import Pair, common_subsequence, increasing

if TYPE_CHECKING:
    from workbench.records import GraphRecord


# Removal of pairs of nodes, so that the union of two graphs has a forward order.


def break_cycles(a: GraphRecord, b: GraphRecord, partner: Ints) -> None:
    """Remove pairs until the union has no cycle.

    Args:
        a: a graph.
        b: another graph.
        partner: row of ``b`` for each row of ``a``, -1 if it has none; changed in place.
    """
    size = len(partner)
    merged = size + np.arange(len(b.node_type))
    rows = np.flatnonzero(partner >= 0)
    merged[partner[rows]] = rows
    starts = np.concatenate([a.edge_from.astype(np.int64), merged[b.edge_from]])
    ends = np.concatenate([a.edge_to.astype(np.int64), merged[b.edge_to]])
    near = rows_near_cycles(size + len(b.node_type), starts, ends)
    tangled = [row for row in near.tolist() if row < size and partner[row] >= 0]
    pairs: list[Pair] = [(row, int(partner[row])) for row in tangled]
    partner[tangled] = -1
    for row, place in increasing(pairs):
        partner[row] = place


# One of the two captures as the comparison reads it: its Python calls, module by module.

MOST_ANCESTORS = 4
"""Number of matched operations nearest before a call that distinguish it from others."""

_OUTSIDE = "outside"
"""Stands for the pseudo-module of code outside every module."""


@dataclass(eq=False)
class Call:
    """One Python call in one module: its nodes in forward order."""

    op: str
    place: Hashable
    file: str
    code: Hashable
    """File and function of its line; None where that is unknown."""
    rows: list[int] = field(default_factory=list[int])
    partner: int = -1
    """Number of the matching call on the other side."""


class Side:
    """One record, read for alignment; by types and shapes alone if either record names less."""

    def __init__(self, record: GraphRecord, *, by_type: bool = False) -> None:
        self.record = record
        self._by_type = by_type
        text = record.strings
        self.type = [text[i] for i in record.node_type.tolist()]
        self.name = [text[i] for i in record.node_name.tolist()]
        self.module: list[Hashable] = [
            (m.path, m.parent < 0) if m.cls and not by_type else _OUTSIDE for m in record.modules
        ]
        self.module_of: list[int] = record.node_module.tolist()
        self.is_leaf: list[bool] = np.isin(record.node_kind, (1, 2)).tolist()
        self.inputs: list[list[int]] = [[] for _ in self.type]
        for maker, user in zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True):
            self.inputs[user].append(maker)
        self.calls: list[Call] = []
        self.call_of = [-1] * len(self.type)
        self.by_module: dict[Hashable, list[int]] = defaultdict(list)
        """Module -> its calls in forward order."""
        self._read_calls()
        outside = (self.calls[number] for number in self.by_module[_OUTSIDE])
        self._script = {call.code for call in outside} - {None}
        self.ancestors: list[tuple[int, ...]] = []

    def _read_calls(self) -> None:
        record = self.record
        numbers: dict[tuple[int, int], int] = {}
        for row, (module, call) in enumerate(
            zip(self.module_of, record.node_call.tolist(), strict=True)
        ):
            if self.is_leaf[row]:
                continue
            key = (module, call if call >= 0 and not self._by_type else -2 - row)
            number = numbers.setdefault(key, len(self.calls))
            if number == len(self.calls):
                self.calls.append(self._new_call(row))
                self.by_module[self.module[module]].append(number)
            self.calls[number].rows.append(row)
            self.call_of[row] = number

    def _new_call(self, row: int) -> Call:
        if self._by_type:
            shape = self.record.strings[self.record.node_shape[row]]
            return Call(self.type[row], shape, "", None)
        op = self.record.strings[self.record.node_op[row]]
        source = int(self.record.node_source[row])
        if source < 0:
            return Call(op, None, "", None)
        line = self.record.sources[source]
        place = (line.function, line.text.strip() or line.line)
        return Call(op, place, line.filename, (line.filename, line.function))

    def is_called_from(self, call: Call) -> bool:
        """Whether its line is in a script, or in the code that called a torch module."""
        module = self.record.modules[self.module_of[call.rows[0]]]
        return call.code in self._script or is_of_torch(module.cls)

    def outside_inputs(self, call: Call) -> list[int]:
        """Rows that ``call`` takes values from."""
        number = self.call_of[call.rows[0]]
        return [i for row in call.rows for i in self.inputs[row] if self.call_of[i] != number]

    def ancestors_of(self, call: Call) -> tuple[int, ...]:
        """The matched operations nearest before ``call``."""
        found = {a for row in self.outside_inputs(call) for a in self.ancestors[row]}
        return tuple(sorted(found)[-MOST_ANCESTORS:])


# A capture that names less than the other: one of a loss alone, compared with one of a whole
# forward.
#
# A forward that was watched gives each node its call, its line and the module that ran it. From a
# loss alone, modules are known by their parameters, and calls and lines not at all. None of this is
# a difference between the two graphs, so nodes are then compared by what both captures know.


def names_less(a: GraphRecord, b: GraphRecord) -> Literal["A", "B", ""]:
    """The capture without any call of its nodes, if the other one has calls; else empty."""
    knows_a, knows_b = bool((a.node_call >= 0).any()), bool((b.node_call >= 0).any())
    if knows_a == knows_b:
        return ""
    return "B" if knows_a else "A"


def names_less_sentence(a: GraphRecord, b: GraphRecord) -> str:
    """One sentence about which capture names less, and what it lacks; ``""`` if neither does."""
    name = names_less(a, b)
    if not name:
        return ""
    less, more = (a, b) if name == "A" else (b, a)
    has_modules = any(module.cls for module in less.modules)
    what = ["modules by their parameters" if has_modules else "no modules", "no source lines"]
    if less.input_bytes < more.input_bytes:
        what.append("inputs counted as saved")
    return f"{name} was captured from a loss alone: {', '.join(what)}."


_Token = Callable[[Side, Call], Hashable]


def align(a: GraphRecord, b: GraphRecord) -> Ints:
    """Row of ``b`` for each row of ``a``, -1 if it has none.

    The union of both graphs, in which each pair is one node, has no cycle. Near-linear in the
    number of nodes if the captures are alike or wholly different.
    """
    by_type = bool(names_less(a, b))
    one, other = Side(a, by_type=by_type), Side(b, by_type=by_type)
    partner = np.full(len(a.node_type), -1, dtype=np.int64)
    _match_leaves(one, other, partner)
    edited = _edited_files(a, b)
    _round(one, other, _by_inputs)
    _note_ancestors(one, other)
    _round(one, other, lambda side, call: (call.op, call.place, side.ancestors_of(call)))
    _round(one, other, lambda _, call: (call.op, call.place))
    _round(one, other, lambda _, call: (call.op, None if call.file in edited else call.place))
    _round(one, other, lambda side, call: call.op if side.is_called_from(call) else call)
    for call in one.calls:
        if call.partner >= 0:
            _match_nodes(one, other, call, partner)
    if by_type:
        _match_nameless(one, other, partner)
    break_cycles(a, b, partner)
    return partner


def _by_inputs(side: Side, call: Call) -> Hashable:
    inputs = side.outside_inputs(call)
    makers = {
        side.name[row] if side.is_leaf[row] else side.module[side.module_of[row]] for row in inputs
    }
    return call.op, call.place, frozenset(makers)


def _note_ancestors(one: Side, other: Side) -> None:
    """Record, per row, the last matched calls behind its value, by their number in ``one``."""
    for side, name_of in ((one, None), (other, [call.partner for call in other.calls])):
        for row, makers in enumerate(side.inputs):
            number = side.call_of[row]
            found: tuple[int, ...] = ()
            if number >= 0 and side.calls[number].partner >= 0:
                found = (number if name_of is None else name_of[number],)
            elif len(makers) == 1:
                found = side.ancestors[makers[0]]
            elif makers:
                union = {ancestor for maker in makers for ancestor in side.ancestors[maker]}
                found = tuple(sorted(union)[-MOST_ANCESTORS:])
            side.ancestors.append(found)


def _edited_files(a: GraphRecord, b: GraphRecord) -> set[str]:
    """Files whose lines cannot be trusted to be the same code in both captures.

    A file is the same code if both captures know a line of it and no line has a different text.
    Different lines of such a file are different code, never one line that was edited.
    """
    known = {(line.filename, line.line): line.text for line in a.sources}
    both = {line.filename for line in a.sources} & {line.filename for line in b.sources}
    changed = {
        line.filename
        for line in b.sources
        if known.get((line.filename, line.line), line.text) != line.text
    }
    files = {line.filename for line in (*a.sources, *b.sources)}
    return (files - both) | changed | {""}


def _round(one: Side, other: Side, token: _Token) -> None:
    """Match the remaining calls of each module, between the calls that are already matched."""
    for module, calls in one.by_module.items():
        others = other.by_module.get(module, [])
        for gap_a, gap_b in _gaps(one, calls, others):
            numbers: dict[Hashable, int] = {}
            left = [numbers.setdefault(token(one, one.calls[n]), len(numbers)) for n in gap_a]
            right = [numbers.setdefault(token(other, other.calls[n]), len(numbers)) for n in gap_b]
            for i, j in common_subsequence(left, right):
                one.calls[gap_a[i]].partner = gap_b[j]
                other.calls[gap_b[j]].partner = gap_a[i]


def _gaps(one: Side, calls: Sequence[int], others: Sequence[int]) -> list[tuple[list[int], ...]]:
    """Unmatched calls of a module on both sides, between one pair and the next."""
    place = {number: at for at, number in enumerate(others)}
    found: list[tuple[list[int], ...]] = []
    pending: list[int] = []
    start = 0
    for number in (*calls, -1):
        partner = one.calls[number].partner if number >= 0 else -1
        if number >= 0 and partner < 0:
            pending.append(number)
            continue
        end = place[partner] if number >= 0 else len(others)
        if pending and start < end:
            found.append((pending, list(others[start:end])))
        pending, start = [], end + 1
    return found


def _match_nodes(one: Side, other: Side, call: Call, partner: Ints) -> None:
    rows = other.calls[call.partner].rows
    numbers: dict[str, int] = {}
    left = [numbers.setdefault(one.type[row], len(numbers)) for row in call.rows]
    right = [numbers.setdefault(other.type[row], len(numbers)) for row in rows]
    for i, j in common_subsequence(left, right):
        partner[call.rows[i]] = rows[j]


def _match_leaves(one: Side, other: Side, partner: Ints) -> None:
    places: dict[Hashable, list[int]] = defaultdict(list)
    for row in range(len(other.type) - 1, -1, -1):
        if other.is_leaf[row]:
            places[_leaf_key(other, row)].append(row)
    for row in range(len(one.type)):
        rows = places.get(_leaf_key(one, row)) if one.is_leaf[row] else None
        if rows:
            partner[row] = rows.pop()


def _leaf_key(side: Side, row: int) -> Hashable:
    name = side.name[row]
    return name or (side.module[side.module_of[row]], int(side.record.node_kind[row]))


def _match_nameless(one: Side, other: Side, partner: Ints) -> None:
    """Match leaves that only one capture has names for, by the node that uses them, in order."""
    taken = set(partner.tolist())
    for row in np.flatnonzero(partner >= 0).tolist():
        left = [i for i in one.inputs[row] if one.is_leaf[i] and partner[i] < 0]
        right = [i for i in other.inputs[int(partner[row])] if other.is_leaf[i] and i not in taken]
        for i, j in zip(left, right, strict=False):
            if not (one.name[i] and other.name[j]) and partner[i] < 0 and j not in taken:
                partner[i] = j
                taken.add(j)
