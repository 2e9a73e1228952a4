"""The printed view: modules with their operations, saved bytes and output shapes.

Three or more equal siblings in a row (the layers of a transformer) are represented by the first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.capture.branch_columns import branch_lines
from workbench.graph.core.number_format import (
    byte_size,
    compiled_line,
    heading,
    held_anyway,
    plural,
    printable,
    short,
    summary,
)
from workbench.graph.core.operations import operations_of
from workbench.graph.questions.compute_dtype import types_line
from workbench.graph.questions.why_no_gradient import unreached_lines
from workbench.records import NODE_KINDS

if TYPE_CHECKING:
    import numpy.typing as npt

    from workbench.records import GraphRecord

MAX_ROWS = 60
MIN_RUN = 3
"""Fewer equal siblings than this are listed one by one."""
_COLUMNS = ("module", "class", "ops", "saved", "gradient", "output", "calls")
_RIGHT = {2, 3, 4}
"""Columns of numbers."""


def describe(record: GraphRecord) -> str:
    """A table of ``record``, one line per module, at most `MAX_ROWS` of them."""
    rows = _rows(record)
    shown = rows[:MAX_ROWS]
    if len(rows) > MAX_ROWS:
        rest = len(rows) - MAX_ROWS
        shown.append((f"… {rest:,} more modules", *[""] * (len(_COLUMNS) - 1)))
    lines = [heading(record), f"{summary(record)}.", *gradient_lines(record)]
    if len(record.inner_node):
        lines.append(compiled_line(record))
    if types := types_line(record):
        lines.append(types)
    lines.append("")
    lines += _table([_COLUMNS, *shown], without=() if record.gradients else (4,))
    notes = (
        held_anyway(record), *unreached_lines(record), *branch_lines(record), *record.notes
    )  # fmt: skip
    texts = [printable(note) for note in notes if note]
    return "\n".join([*lines, *(["", *texts] if texts else [])])


def _rows(record: GraphRecord) -> list[tuple[str, ...]]:
    depth: list[int] = []
    rows_of: dict[int, list[int]] = defaultdict(list)
    is_operation = (record.node_kind == 0) | (record.node_kind == 3)
    for row in np.flatnonzero(is_operation).tolist():
        rows_of[int(record.node_module[row])].append(row)
    totals = subtree_bytes(record)
    norms = subtree_gradients(record)
    inside = np.bincount(record.inner_module, minlength=len(record.modules)).tolist()
    operation = operations_of(record)
    runs = equal_siblings(record)
    stands_for = {run[0]: run for run in runs}
    alike = _alike(record, runs)
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
                f"{len({operation[row] for row in rows}):,}" if rows else "",
                byte_size(totals[index]) if totals[index] else "",
                _range([norms[other] for other in alike.get(index, [index])]),
                short(shape, 24),
                short(_calls(record, rows) or _compiled(inside[index]), 40),
            )
        )
    return found


def equal_siblings(record: GraphRecord) -> list[list[int]]:
    """Runs of `MIN_RUN` or more neighbouring modules that one line can represent.

    They and their submodules are of the same classes, made the same nodes, saved the same bytes and
    returned the same shapes.
    """
    alike = _signatures(record)
    children: dict[int, list[int]] = defaultdict(list)
    for index, module in enumerate(record.modules):
        children[module.parent].append(index)
    found: list[list[int]] = []
    for parent, rows in children.items():
        runs = [list(same) for _, same in groupby(rows, key=alike.__getitem__)]
        found += [run for run in runs if len(run) >= MIN_RUN and parent >= 0]
    return found


def _signatures(record: GraphRecord) -> list[int]:
    """Per module a number, shared by modules that look equal in the table, gradients aside."""
    size = len(record.modules)
    saved = np.bincount(record.node_module, record.node_saved_bytes, minlength=size).tolist()
    made: list[list[int]] = [[] for _ in record.modules]
    shape = [-1] * size
    for module, op, of in zip(
        record.node_module.tolist(),
        record.node_op.tolist(),
        record.node_shape.tolist(),
        strict=True,
    ):
        made[module].append(op)
        shape[module] = of
    inside: list[list[int]] = [[] for _ in record.modules]
    numbers: dict[tuple[object, ...], int] = {}
    found = [0] * size
    for index in range(size - 1, -1, -1):  # parents come first in the table
        module = record.modules[index]
        looks = (module.cls, tuple(made[index]), saved[index], shape[index], tuple(inside[index]))
        found[index] = numbers.setdefault(looks, len(numbers))
        if module.parent >= 0:
            inside[module.parent].append(found[index])
    return found


def _alike(record: GraphRecord, runs: list[list[int]]) -> dict[int, list[int]]:
    """Row in the table -> modules it represents, for the first of each run and all inside it."""
    row_of = {module.path: index for index, module in enumerate(record.modules)}
    found: dict[int, list[int]] = {}
    for run in runs:
        first, *_ = paths = [record.modules[index].path for index in run]
        for path, index in row_of.items():
            if path == first or path.startswith(f"{first}."):
                others = (row_of.get(other + path[len(first) :]) for other in paths)
                found[index] = [other for other in others if other is not None]
    return found


def _range(norms: Sequence[float | None]) -> str:
    """``0.116``, or ``0.116 … 0.586`` if one line represents several."""
    known = [norm for norm in norms if norm is not None]
    if not known:
        return ""
    low, high = f"{min(known):.3g}", f"{max(known):.3g}"
    return low if low == high else f"{low} … {high}"


def subtree_bytes(record: GraphRecord) -> list[int]:
    """Saved bytes of every module with all it contains; parents come first in the table."""
    totals = np.zeros(len(record.modules), dtype=np.int64)
    np.add.at(totals, record.node_module, record.node_saved_bytes)
    for index in range(len(totals) - 1, -1, -1):
        parent = record.modules[index].parent
        if parent >= 0:
            totals[parent] += totals[index]
    return totals.tolist()


def subtree_gradients(record: GraphRecord) -> list[float | None]:
    """L2 norm of the gradients of all parameters of every module, with all it contains.

    None where no parameter got a gradient, or none was measured.
    """
    sums: list[float | None] = [None] * len(record.modules)
    norms = record.node_gradient_norm.astype(np.float64)
    for row in np.flatnonzero(_measured_parameters(record)).tolist():
        module = int(record.node_module[row])
        sums[module] = (sums[module] or 0.0) + float(norms[row]) ** 2
    for index in range(len(sums) - 1, -1, -1):
        parent, own = record.modules[index].parent, sums[index]
        if parent >= 0 and own is not None:
            sums[parent] = (sums[parent] or 0.0) + own
    return [None if total is None else math.sqrt(total) for total in sums]


def gradient_lines(record: GraphRecord) -> list[str]:
    """Sentences about the gradients that backward gave; empty if it was not watched."""
    if not record.gradients:
        return [] if record.non_finite is None else [record.non_finite.text]
    rows = _measured_parameters(record)
    norms = record.node_gradient_norm[rows].astype(np.float64)
    num_parameters = int((record.node_kind == NODE_KINDS.index("parameter")).sum())
    lines = ["Backward gave no parameter a gradient."]
    if len(norms):
        total = math.sqrt(float((norms**2).sum()))
        lines = [f"Gradient norm {total:.4g} over {plural(len(norms), 'parameter')}."]
        if len(norms) < num_parameters:
            lines[0] = lines[0][:-1] + f"; {num_parameters - len(norms):,} got none."
    if record.non_finite is not None:
        lines.append(record.non_finite.text)
    return lines


def _measured_parameters(record: GraphRecord) -> npt.NDArray[np.bool_]:
    of_parameter = record.node_kind == NODE_KINDS.index("parameter")
    return of_parameter & (record.node_gradient_non_finite >= 0)


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


def _compiled(num_operations: int) -> str:
    return f"{plural(num_operations, 'operation')} in compiled code" if num_operations else ""


def _table(rows: list[tuple[str, ...]], without: tuple[int, ...]) -> list[str]:
    kept = [i for i in range(len(_COLUMNS)) if i not in without]
    widths = {i: max(len(row[i]) for row in rows) for i in kept}
    return [
        "  ".join(
            row[i].rjust(widths[i]) if i in _RIGHT else row[i].ljust(widths[i]) for i in kept
        ).rstrip()
        for row in rows
    ]
