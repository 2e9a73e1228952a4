"""The printed view: modules with their operations, saved bytes and output shapes.

Of three or more equal siblings in a row (the layers of a transformer) the first stands for all.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.wording import byte_size, heading, held_anyway, short, summary

if TYPE_CHECKING:
    from workbench.records import GraphRecord

MAX_ROWS = 60
MIN_RUN = 3
"""Fewer equal siblings than this are listed one by one."""
_COLUMNS = ("module", "class", "ops", "saved", "output", "calls")


def describe(record: GraphRecord) -> str:
    """A table of ``record``, one line per module, at most `MAX_ROWS` of them."""
    rows = _rows(record)
    shown = rows[:MAX_ROWS]
    if len(rows) > MAX_ROWS:
        rest = len(rows) - MAX_ROWS
        shown.append((f"… {rest:,} more modules", "", "", "", "", ""))
    lines = [heading(record), f"{summary(record)}.", ""]
    lines += _table([_COLUMNS, *shown])
    said = [note for note in (held_anyway(record), *record.notes) if note]
    return "\n".join([*lines, *(["", *said] if said else [])])


def _rows(record: GraphRecord) -> list[tuple[str, ...]]:
    depth: list[int] = []
    rows_of: dict[int, list[int]] = defaultdict(list)
    is_operation = (record.node_kind == 0) | (record.node_kind == 3)
    for row in np.flatnonzero(is_operation).tolist():
        rows_of[int(record.node_module[row])].append(row)
    totals = subtree_bytes(record)
    runs = equal_siblings(record)
    stands_for = {run[0]: run for run in runs}
    hidden = {index for run in runs for index in run[1:]}
    found: list[tuple[str, ...]] = []
    for index, module in enumerate(record.modules):
        depth.append(depth[module.parent] + 1 if module.parent >= 0 else 0)
        if module.parent in hidden:
            hidden.add(index)
        if index in hidden:
            continue
        name = module.path.rsplit(".", 1)[-1] or record.model
        run = stands_for.get(index)
        if run is not None:
            last = record.modules[run[-1]].path.rsplit(".", 1)[-1]
            name = f"{short(name, 10)} … {short(last, 10)}, each"
        rows = rows_of[index]
        shape = record.strings[record.node_shape[rows[-1]]] if rows else ""
        found.append(
            (
                "  " * min(depth[-1], 10) + short(name, 30),
                short(module.cls, 24),
                str(len(rows)) if rows else "",
                byte_size(totals[index]) if totals[index] else "",
                short(shape, 24),
                short(_calls(record, rows), 40),
            )
        )
    return found


def equal_siblings(record: GraphRecord) -> list[list[int]]:
    """Runs of `MIN_RUN` or more neighbouring modules of one class that made as many nodes."""
    num_nodes = np.bincount(record.node_module, minlength=len(record.modules))
    children: dict[int, list[int]] = defaultdict(list)
    for index in range(len(record.modules) - 1, -1, -1):  # parents come first in the table
        parent = record.modules[index].parent
        children[parent].append(index)
        if parent >= 0:
            num_nodes[parent] += num_nodes[index]
    found: list[list[int]] = []
    for parent, backwards in children.items():
        rows = backwards[::-1]
        kinds = groupby(rows, key=lambda row: (record.modules[row].cls, int(num_nodes[row])))
        runs = [list(same) for _, same in kinds] if parent >= 0 else []
        found += [run for run in runs if len(run) >= MIN_RUN]
    return found


def subtree_bytes(record: GraphRecord) -> list[int]:
    """Saved bytes of every module with all it contains; parents come first in the table."""
    totals = np.zeros(len(record.modules), dtype=np.int64)
    np.add.at(totals, record.node_module, record.node_saved_bytes)
    for index in range(len(totals) - 1, -1, -1):
        parent = record.modules[index].parent
        if parent >= 0:
            totals[parent] += totals[index]
    return totals.tolist()


def _calls(record: GraphRecord, rows: list[int]) -> str:
    """``conv2d, batch_norm, relu × 2``: operations in order, those of one call once."""
    keys: list[tuple[str, int]] = []
    for row in rows:
        call = int(record.node_call[row])
        key = (record.strings[record.node_op[row]], call if call >= 0 else -2 - row)
        if not keys or keys[-1] != key:
            keys.append(key)
    runs = [(op, len(list(same))) for op, same in groupby(op for op, _ in keys)]
    return ", ".join(op if count == 1 else f"{op} × {count}" for op, count in runs[:8])


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    right = {2, 3}
    return [
        "  ".join(
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
