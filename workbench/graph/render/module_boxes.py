"""Choice of the modules that the static picture shows as boxes, and of each box's operations.

A box is a module, a run of equal sibling modules that follow each other in the flow, or a run of
operations that a shown module does itself between its children. The largest modules are opened
first until the picture is full, so it has the same size for ten operations and for ten thousand. In
a diff only modules in which something differs are opened, those that differ in part first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.graph.core.number_format import plural, short
from workbench.graph.core.operations import operations_of
from workbench.graph.core.text_width import text_width
from workbench.records import GraphDiff

if TYPE_CHECKING:
    from workbench.records import GraphRecord


# Runs of equal sibling modules that ran one after the other: the static picture merges these.
#
# Equal neighbours in a `ModuleList` are one box only if nothing else ran between them. With an
# early exit after its first block, the box of all blocks would feed both the exit and the head, as
# if the exit came last.

_Rows = npt.NDArray[np.int32] | npt.NDArray[np.int64]


def as_they_ran(
    record: GraphRecord, owners: _Rows, parent: int, alike: Callable[[int], Hashable]
) -> list[list[int]]:
    """Children of ``parent`` in forward order, in runs.

    A run consists of children that are equal by ``alike`` and between whose first calls nothing
    else ran: no operation of ``parent`` itself, nor of a module elsewhere.

    Args:
        record: a captured graph.
        owners: the module of each operation, in forward order; -1 for none.
        parent: a row of ``record.modules``; -1 for modules without a parent.
        alike: returns equal values for modules that may be in one run.
    """
    found: list[list[int]] = []
    run_of: dict[int, int] = {}
    before = -1
    for row, _ in groupby(_child_that_ran(record, owners, parent).tolist()):
        if row >= 0 and row not in run_of:
            follows = before >= 0 and run_of[before] == len(found) - 1
            if not (follows and alike(before) == alike(row)):
                found.append([])
            found[-1].append(row)
            run_of[row] = len(found) - 1
        before = row
    return found


def _child_that_ran(record: GraphRecord, owners: _Rows, parent: int) -> _Rows:
    """Per operation, the child of ``parent`` that it ran in; -1 if it ran in none."""
    child = np.full(len(record.modules) + 1, -1, dtype=np.int64)  # the last is for no module
    for row, module in enumerate(record.modules):  # parents come first in the table
        child[row] = row if module.parent == parent else child[module.parent]
    return child[owners]


_DETAIL = 174
"""Width available in a box's second line, px."""
_MIN_RUN = 3
"""Fewer equal siblings than this are shown one by one."""
_MOST_CALLS = 4
"""A module called more often than this is a loop: one box."""

_Key = tuple[str, int, int]
"""The box of a node: ("module", first module of the run) or ("own", number of the run), and the
index of the call."""


@dataclass
class Box:
    """One box. Coordinates are of its top left corner, in px."""

    label: str
    detail: str
    rows: list[int] = field(default_factory=list[int])
    """Nodes that it represents, in forward order."""
    saved_bytes: int = 0
    repeats: bool = False
    """Whether a value comes back to it from a later box: a loop in Python."""
    rank: int = 0
    x: float = 0
    y: float = 0


def boxes_of(record: GraphRecord, most: int) -> list[Box]:
    """The boxes of ``record``, in forward order; about ``most`` of them, whatever its size."""
    groups = _Groups(record, most)
    rows_of = _calls_apart(record, groups.keys_of_rows())
    return [groups.box(key, rows) for key, rows in rows_of.items()]


def _calls_apart(record: GraphRecord, keys: list[_Key]) -> dict[_Key, list[int]]:
    """Rows by box; a module that was called again later gets a box for each of its few calls.

    Otherwise a pooling layer that is used twice would lead from the end of the model back to its
    start. A module that a Python loop calls many times stays one box, marked as a loop.
    """
    runs: dict[_Key, list[list[int]]] = defaultdict(list)
    before: _Key | None = None
    for row in np.flatnonzero(_is_operation(record)).tolist():
        if keys[row] != before:
            runs[keys[row]].append([])
        before = keys[row]
        runs[before][-1].append(row)
    again = _called_again(record, keys)
    rows_of: dict[_Key, list[int]] = {}
    for (kind, first, _), parts in runs.items():
        apart = (kind, first, 0) in again and len(parts) <= _MOST_CALLS
        for number, rows in enumerate(parts if apart else [list(chain(*parts))]):
            rows_of[kind, first, number] = rows
    return dict(sorted(rows_of.items(), key=lambda item: item[1][0]))


def _called_again(record: GraphRecord, keys: list[_Key]) -> set[_Key]:
    """Boxes that a value reaches from a box which begins later."""
    begins: dict[_Key, int] = {}
    for row in np.flatnonzero(_is_operation(record)).tolist():
        begins.setdefault(keys[row], row)
    edges = zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True)
    return {
        keys[end]
        for start, end in edges
        if begins.get(keys[start], -1) > begins.get(keys[end], len(keys))
    }


def _is_operation(record: GraphRecord) -> np.ndarray:
    return (record.node_kind == 0) | (record.node_kind == 3)


class _Groups:
    """Decides which module, or run of equal modules, each operation is drawn in."""

    def __init__(self, record: GraphRecord, most: int) -> None:
        self.record = record
        self.most = most
        self.children: dict[int, list[int]] = defaultdict(list)
        for row, module in enumerate(record.modules):
            self.children[module.parent].append(row)
        operations = _is_operation(record)
        self.total = self._totals(operations)
        self.by_state = self._by_state(operations)
        self.operation = operations_of(record)
        self.member: dict[int, int] = {}
        """Module -> the module of a shown run that it is, or that contains it."""
        self.runs: dict[int, list[int]] = {}
        """First module of a shown run -> all modules of that run."""
        self.opened: set[int] = set()
        self._known: dict[int, list[list[list[int]]]] = {}
        self._open()

    def _totals(self, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Per module, how many of ``rows`` it and its submodules own."""
        totals = np.bincount(self.record.node_module[rows], minlength=len(self.record.modules))
        for row in range(len(totals) - 1, -1, -1):  # parents come first in the table
            parent = self.record.modules[row].parent
            if parent >= 0:
                totals[parent] += totals[row]
        return totals.astype(np.int64)

    def _by_state(self, operations: npt.NDArray[np.bool_]) -> list[tuple[int, ...]]:
        """Per module, numbers of same, removed, added and changed operations; () if no diff."""
        states = getattr(self.record, "node_state", None)
        if not isinstance(self.record, GraphDiff) or states is None or not states.any():
            return [()] * len(self.record.modules)
        counts = [self._totals(operations & (states == state)).tolist() for state in range(4)]
        return list(zip(*counts, strict=True))

    def _priority(self, row: int) -> tuple[bool, int]:
        """Sort key: the module that is opened first has the largest key."""
        counts = self.by_state[row]
        mixed = bool(counts) and sum(count > 0 for count in counts) > 1
        return mixed, int(self.total[row])

    def _open(self) -> None:
        for run in self._runs_of(-1)[-1]:
            self.runs[run[0]] = run
        while True:
            choices = [run[0] for run in self.runs.values() if len(run) == 1]
            choices = [row for row in choices if any(self.total[c] for c in self.children[row])]
            choices = [row for row in choices if not self._is_unchanged(row)]
            for row in sorted(choices, key=self._priority, reverse=True):
                room = self.most - self._num_boxes(row) - len(self.runs) + 1
                inner = next((runs for runs in self._runs_of(row) if len(runs) <= room), None)
                if inner is not None:
                    break
            else:
                return
            del self.runs[row]
            self.opened.add(row)
            self.runs |= {run[0]: run for run in inner}

    def _is_unchanged(self, row: int) -> bool:
        return bool(self.by_state[row]) and not any(self.by_state[row][1:])

    def _num_boxes(self, row: int) -> int:
        """Number of boxes for opened modules' own operations, if ``row`` were opened too."""
        owner = self.record.node_module[_is_operation(self.record)]
        opened = np.isin(owner, [*self.opened, row])
        changes = np.concatenate([[True], owner[1:] != owner[:-1]])
        return int(np.count_nonzero(opened & changes))

    def _runs_of(self, parent: int) -> list[list[list[int]]]:
        """Children that ran, in runs of equal neighbours: first as they ran, then as listed.

        What runs between two of them (an early exit, an addition) separates them in the first list;
        the second takes less room.
        """
        if parent not in self._known:
            listed = [row for row in self.children[parent] if self.total[row]]
            owners = self.record.node_module[_is_operation(self.record)]
            ran = as_they_ran(self.record, owners, parent, self._alike)
            choices = [ran, [list(run) for _, run in groupby(listed, self._alike)]]
            self._known[parent] = [_long_ones(runs, parent) for runs in choices]
        return self._known[parent]

    def _alike(self, row: int) -> tuple[str, int, tuple[int, ...]]:
        return self.record.modules[row].cls, int(self.total[row]), self.by_state[row]

    def keys_of_rows(self) -> list[_Key]:
        """Per row of the record, the key of the box it is drawn in."""
        shown: dict[int, int] = {}
        for first, run in self.runs.items():
            pending = list(run)
            while pending:
                row = pending.pop()
                shown[row] = first
                self.member[row] = self.member.get(self.record.modules[row].parent, row)
                pending += self.children[row]
        keys: list[_Key] = []
        num_runs, last = 0, -1
        for is_operation, owner in zip(
            _is_operation(self.record).tolist(), self.record.node_module.tolist(), strict=True
        ):
            if is_operation and owner not in shown:
                num_runs += owner != last
            last = owner if is_operation else last
            keys.append(("module", shown[owner], 0) if owner in shown else ("own", num_runs, 0))
        return keys

    def box(self, key: _Key, rows: list[int]) -> Box:
        """The box that represents ``rows``."""
        record = self.record
        saved = int(record.node_saved_bytes[rows].sum())
        shape = record.strings[record.node_shape[rows[-1]]]
        if key[0] == "module":
            here = {self.member[owner] for owner in record.node_module[rows].tolist()}
            run = [row for row in self.runs[key[1]] if row in here]
            label, cls = self._run_label(run), record.modules[run[0]].cls
        else:
            ops = [record.strings[record.node_op[row]] for row in rows]
            label, cls = ", ".join(op for op, _ in groupby(ops)), ""
        count = plural(len({self.operation[row] for row in rows}), "op")
        detail = " · ".join(part for part in (shape, short(cls, 18), count) if part)
        if text_width(detail, 11) > _DETAIL:  # the class is what can be guessed from the name
            detail = f"{short(shape, 20)} · {count}" if shape else count
        return Box(label, detail, rows=rows, saved_bytes=saved)

    def _run_label(self, run: list[int]) -> str:
        path = self.record.modules[run[0]].path or self.record.model
        if len(run) == 1:
            return path
        last = self.record.modules[run[-1]].path.rsplit(".", 1)[-1]
        *above, first = path.split(".")
        if not (first.isdigit() and last.isdigit()):
            parent = above[-1] if above else self.record.model
            return f"{short(parent, 11)}.* × {len(run)}"
        near = ".".join(path.split(".")[-2:])
        return f"{short(near, 11)}…{short(last, 4)} × {len(run)}"


def _long_ones(runs: list[list[int]], parent: int) -> list[list[int]]:
    """Split the short ones of ``runs`` into single modules."""
    together = [len(run) >= _MIN_RUN and parent >= 0 for run in runs]
    parts = [
        [run] if one else [[row] for row in run] for run, one in zip(runs, together, strict=True)
    ]
    return list(chain(*parts))
