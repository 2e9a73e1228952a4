"""The printed diff: the sentence, the totals, what was removed, added and changed, gradients."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.core.number_format import (
    byte_size,
    numbers_starred,
    plural,
    printable,
    ratio,
    short,
    signed_bytes,
    significant,
    tail,
)
from workbench.graph.diff.causes import BEYOND, beyond, shared_gradients
from workbench.graph.diff.summary import num_casts, operations, whole_modules
from workbench.graph.render.text import MIN_RUN
from workbench.records import DIFF_STATES

if TYPE_CHECKING:
    from workbench.graph.diff.causes import GradientChange
    from workbench.records import GraphDiff

SAME, REMOVED, ADDED, CHANGED = range(len(DIFF_STATES))
MAX_ROWS = 12
"""Maximum number of lines of a section; the rest is only counted."""

_Row = tuple[str, ...]


def describe_diff(diff: GraphDiff) -> str:
    """The diff as text, with at most `MAX_ROWS` lines per section."""
    lines = [f"A: {short(diff.a.title, 80)}", f"B: {short(diff.b.title, 80)}", diff.sentence, ""]
    lines += _columns([("", "A", "B", "B − A"), *_totals(diff)], right={1, 2, 3})
    names = _op_names(diff)
    for state, sign, verb in ((REMOVED, "−", "Removed"), (ADDED, "+", "Added")):
        lines += _section(f"{sign} {verb}", diff, state, _gone_or_new(diff, state, names))
    lines += _section("≠ Changed", diff, CHANGED, _changed(diff, names))
    lines += _gradients(diff)
    return "\n".join([*lines, *(["", *map(printable, diff.notes)] if diff.notes else [])])


def _totals(diff: GraphDiff) -> list[_Row]:
    a, b = diff.a, diff.b
    rows: list[_Row] = [
        _count("Backward nodes", a.num_operations, b.num_operations),
        _count("Casts", *num_casts(diff)),
        _count("Parameters with gradient", a.num_parameters, b.num_parameters),
        (
            "Saved for backward",
            byte_size(a.saved_bytes),
            byte_size(b.saved_bytes),
            signed_bytes(b.saved_bytes - a.saved_bytes),
        ),
    ]
    before, after = a.gradient_norm, b.gradient_norm
    if before is not None or after is not None:
        change = ratio(before or 0.0, after or 0.0)
        rows.append(("Gradient norm, all", _number(before), _number(after), change))
    if a.loss is not None and b.loss is not None:
        change = significant(b.loss - a.loss)
        rows.append(("Loss", significant(a.loss), significant(b.loss), change))
    return rows


def _count(name: str, before: int, after: int) -> _Row:
    return name, f"{before:,}", f"{after:,}", f"{after - before:+,}".replace("-", "−")


def _number(value: float | None) -> str:
    return "" if value is None else significant(value)


def _section(name: str, diff: GraphDiff, state: int, rows: list[_Row]) -> list[str]:
    if not rows:
        return []
    of_state = diff.node_state == state
    counts = [plural(int(np.count_nonzero(operations(diff) & of_state)), "backward node")]
    parameters = int(np.count_nonzero((diff.node_kind == 1) & of_state))
    counts += [plural(parameters, "parameter")] if parameters else []
    return ["", f"{name}: {', '.join(counts)}", *_columns(_cut(_rolled(rows)))]


def _rolled(rows: list[_Row]) -> list[_Row]:
    """Merge rows whose modules differ only in a number and whose other cells are equal."""
    groups: dict[_Row, list[str]] = defaultdict(list)
    for path, *cells in rows:
        groups[numbers_starred(path), *cells].append(path)
    found: list[_Row] = []
    for (pattern, *cells), paths in groups.items():
        if len(paths) < MIN_RUN:
            found += [(tail(path, 40), *cells) for path in paths]
        else:
            times = f" × {len(paths):,}, each"
            found.append((f"{tail(pattern, 40 - len(times))}{times}", *cells))
    return found


def _cut(rows: list[_Row]) -> list[_Row]:
    shown = [("", *row) for row in rows[:MAX_ROWS]]
    if len(rows) > MAX_ROWS:
        shown.append(("", f"… {len(rows) - MAX_ROWS:,} more", *[""] * (len(rows[0]) - 1)))
    return shown


def _gone_or_new(diff: GraphDiff, state: int, names: list[str]) -> list[_Row]:
    """One line for each module: its operations, and the line of the first."""
    owner = list(range(len(diff.modules)))
    whole = set(whole_modules(diff, state))
    for index, module in enumerate(diff.modules):  # parents come first in the table
        if index not in whole and module.parent >= 0 and owner[module.parent] in whole:
            owner[index] = owner[module.parent]
    rows_of: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(diff.node_state == state).tolist():
        rows_of[owner[int(diff.node_module[row])]].append(row)
    found: list[_Row] = []
    for module, rows in rows_of.items():
        leaves = [diff.strings[diff.node_name[row]] for row in rows if diff.node_kind[row] == 1]
        made = [row for row in rows if diff.node_kind[row] not in (1, 2)]
        counts = [plural(len(made), "node")] if made else []
        counts += [plural(len(leaves), "parameter")] if leaves else []
        what = _ops(diff, names, made) if made else ", ".join(leaves)
        found.append((_name(diff, module), short(what, 60), ", ".join(counts), _line(diff, made)))
    return found


def _changed(diff: GraphDiff, names: list[str]) -> list[_Row]:
    """One line for each module and kind of change."""
    groups: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
    for row in np.flatnonzero(diff.node_state == CHANGED).tolist():
        groups[int(diff.node_module[row]), _what_changed(diff, row)].append(row)
    return [
        (
            _name(diff, module),
            short(_ops(diff, names, rows), 40),
            "; ".join(changes),
            signed_bytes(_saved(diff, rows)),
        )
        for (module, changes), rows in groups.items()
    ]


def _what_changed(diff: GraphDiff, row: int) -> tuple[str, ...]:
    text = diff.strings
    found: list[str] = []
    for a, b in (
        (diff.node_shape[row], diff.node_shape_b[row]),
        (diff.node_dtype[row], diff.node_dtype_b[row]),
    ):
        if a != b:
            found.append(f"{short(text[a], 24)} → {short(text[b], 24)}")
    if found:
        return tuple(found)
    held_a = int(diff.node_saved_bytes[row] + diff.node_shared_bytes[row])
    held_b = int(diff.node_saved_bytes_b[row] + diff.node_shared_bytes_b[row])
    if held_a != held_b:
        return (f"holds {byte_size(held_a)} → {byte_size(held_b)}",)
    return ("another backward",)


def _saved(diff: GraphDiff, rows: list[int]) -> int:
    return int((diff.node_saved_bytes_b[rows] - diff.node_saved_bytes[rows]).sum())


def _gradients(diff: GraphDiff) -> list[str]:
    shared = shared_gradients(diff)
    changes = beyond(shared)
    if not diff.gradients or not shared:
        return []
    count = f"{len(changes):,} of {plural(len(shared), 'shared call')}"
    head = f"Gradient beyond × {BEYOND:g}: {count}"
    if not changes:
        return ["", head]
    rows = [_gradient_row(diff, change) for change in changes]
    return ["", head, *_columns(_cut(rows), right={3, 4, 5})]


def _gradient_row(diff: GraphDiff, change: GradientChange) -> _Row:
    sign = "▲" if change.log_factor > 0 else "▼"
    factor = ratio(change.norm_a, change.norm_b)
    module = tail(_name(diff, int(diff.node_module[change.row])), 40)
    op = short(diff.strings[diff.node_op[change.row]], 24)
    return module, op, *map(significant, (change.norm_a, change.norm_b)), f"{sign} {factor}".strip()


def _name(diff: GraphDiff, module: int) -> str:
    return short(diff.modules[module].path or diff.modules[module].cls, 200)


def _line(diff: GraphDiff, rows: list[int]) -> str:
    source = int(diff.node_source[rows[0]]) if rows else -1
    return short(diff.sources[source].label, 40) if source >= 0 else ""


def _ops(diff: GraphDiff, names: list[str], rows: list[int]) -> str:
    """``conv2d × 2, batch_norm``: calls by operation, in order of first use."""
    calls = dict.fromkeys((names[row], _call(diff, row)) for row in rows)
    counts = Counter(op for op, _ in calls)
    return ", ".join(op if count == 1 else f"{op} × {count:,}" for op, count in counts.items())


def _call(diff: GraphDiff, row: int) -> int:
    call = int(diff.node_call[row])
    return call if call >= 0 else -2 - row


def _op_names(diff: GraphDiff) -> list[str]:
    """Per row, the call or the parameter; for a cast that joined a call, ``ToCopy of conv2d``."""
    calls = np.unique(diff.node_call, return_inverse=True)[1]
    highest, lowest = (np.full(int(calls.max(initial=0)) + 1, start) for start in (0, 255))
    states = np.where(diff.node_state == CHANGED, SAME, diff.node_state).astype(np.int64)
    np.maximum.at(highest, calls, states)
    np.minimum.at(lowest, calls, states)
    is_part = (diff.node_call >= 0) & (highest != lowest)[calls] & (states != SAME)
    names = [diff.strings[i] for i in diff.node_op.tolist()]
    for row in np.flatnonzero(diff.node_kind == 1).tolist():
        names[row] = diff.strings[diff.node_name[row]].rpartition(".")[2] or names[row]
    for row in np.flatnonzero(is_part).tolist():
        kind = diff.strings[diff.node_type[row]].rstrip("0123456789").removesuffix("Backward")
        names[row] = f"{kind} of {names[row]}"
    return names


def _columns(rows: list[_Row], right: set[int] | None = None) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    right = right or set()
    return [
        "  ".join(
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
