"""Which node of one capture is which node of another.

Nodes are never compared by identity or by number: between two steps both change. What stays is
where an operation happens: its module path, the operation, its line, and what it is computed from.
So the Python calls of each module are compared as a sequence, in rounds from strict to lenient:

1. same operation, same line, inputs from the same modules and parameters;
2. same operation and line, computed from the same operations found so far (two calls on one line of
   a loop over outputs are told apart by what leads to them);
3. same operation and line;
4. same operation, where the line itself was edited between the captures;
5. same operation, where the line is not of the module's own code: of the script that computes the
   loss (its second capture is made on another line), or of what calls a module of torch's (two
   branches may call the same layer).

A later round only fills the gaps of the one before, so order is kept within a module, and a loop
that ran longer leaves its last rounds over. Inside a matched call nodes are matched by their type:
of a call under autocast the casts are left over. Leaves go by name. Modules that changed places
would make the union of both graphs cyclic; there only pairs in the same order stay.

Where one capture knows no calls and lines (of a loss alone, `workbench.graph.names_less`), its
modules are an estimate too. There every node is a call of its own, all are one sequence, and the
same rounds go by type and shape and by what a node is computed from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.align_cycles import break_cycles
from workbench.graph.align_side import MOST_ANCESTORS, Call, Side
from workbench.graph.names_less import names_less
from workbench.graph.order import Ints
from workbench.graph.subsequence import common_subsequence

if TYPE_CHECKING:
    from workbench.records import GraphRecord

_Token = Callable[[Side, Call], Hashable]


def align(a: GraphRecord, b: GraphRecord) -> Ints:
    """Row of ``b`` for each row of ``a``, -1 where it has none.

    The union of both graphs, each pair being one node, has no cycle. Near-linear in the number of
    nodes while the captures are alike or wholly different.
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
    """Per row, the matched calls through which its value came last, by their number in ``one``."""
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

    A file is the same code where both captures know a line of it and no line reads differently.
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
    """Match what is left in each module, between the calls that are matched already."""
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
    """Leaves that only one capture has names for: by the node that uses them, in its order."""
    taken = set(partner.tolist())
    for row in np.flatnonzero(partner >= 0).tolist():
        left = [i for i in one.inputs[row] if one.is_leaf[i] and partner[i] < 0]
        right = [i for i in other.inputs[int(partner[row])] if other.is_leaf[i] and i not in taken]
        for i, j in zip(left, right, strict=False):
            if not (one.name[i] and other.name[j]) and partner[i] < 0 and j not in taken:
                partner[i] = j
                taken.add(j)
