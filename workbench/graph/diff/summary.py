"""Summary of a diff: operations and modules that left or joined, and bytes saved."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.graph.core.number_format import byte_size, numbers_starred, plural, short, tail
from workbench.records import DIFF_STATES, NODE_KINDS

if TYPE_CHECKING:
    from workbench.records import GraphDiff

SAME, REMOVED, ADDED, CHANGED = range(len(DIFF_STATES))
_MOST_LISTED = 3
"""Maximum number of modules that are named one by one."""
_COMPILED = NODE_KINDS.index("compiled")
_CAST = "ToCopyBackward"
"""Prefix of the type of a node that converts a dtype or a device."""


def operations(diff: GraphDiff) -> npt.NDArray[np.bool_]:
    """Which rows are operations, not leaves."""
    return (diff.node_kind == 0) | (diff.node_kind == _COMPILED)


def whole_modules(diff: GraphDiff, state: int) -> list[int]:
    """The outermost modules all of whose operations are ``removed`` (or ``added``)."""
    totals = np.zeros(len(diff.modules), dtype=np.int64)
    others = np.zeros(len(diff.modules), dtype=np.int64)
    rows = operations(diff)
    np.add.at(totals, diff.node_module[rows], 1)
    np.add.at(others, diff.node_module[rows & (diff.node_state != state)], 1)
    for index in range(len(totals) - 1, -1, -1):  # parents come first in the table
        parent = diff.modules[index].parent
        if parent >= 0:
            totals[parent] += totals[index]
            others[parent] += others[index]
    whole = (totals > 0) & (others == 0)
    return [
        index
        for index, module in enumerate(diff.modules)
        if whole[index] and (module.parent < 0 or not whole[module.parent])
    ]


def names_of(diff: GraphDiff, modules: list[int]) -> str:
    """``block3, head and 2 more``; ``layer.*.norm × 12`` for many that differ in a number only.

    The root is named by its class; a bare number is followed by its class.
    """
    kinds: dict[str, list[int]] = defaultdict(list)
    for module in modules:
        kinds[numbers_starred(diff.modules[module].path)].append(module)
    names: list[str] = []
    for pattern, same in kinds.items():
        if len(same) > _MOST_LISTED:
            names.append(f"{tail(pattern, 40)} × {len(same):,}")
        else:
            names += [_module_name(diff, module) for module in same]
    if len(names) > _MOST_LISTED + 1:
        names = [*names[:_MOST_LISTED], f"{len(names) - _MOST_LISTED:,} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _module_name(diff: GraphDiff, module: int) -> str:
    path, cls = diff.modules[module].path, short(diff.modules[module].cls, 40)
    if not path:
        return cls
    return f"{tail(path, 40)} ({cls})" if path.isdigit() and cls else tail(path, 40)


def consequences(diff: GraphDiff) -> str:
    """Like ``8 backward nodes, all of head, left the graph; 1 backward node (div) joined …``."""
    parts: list[str] = []
    for state, verb in ((REMOVED, "left"), (ADDED, "joined")):
        rows = np.flatnonzero(operations(diff) & (diff.node_state == state))
        if len(rows):
            count = plural(len(rows), "backward node")
            parts.append(f"{count}{_which(diff, state, rows)} {verb} the graph")
    parts += [*_changed(diff), *_casts(diff)]
    if not parts:
        parts.append("only parameters or connections differ")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _which(diff: GraphDiff, state: int, rows: npt.NDArray[np.intp]) -> str:
    """The modules that ``rows`` make up, or their operations if these are few, or casts."""
    ops = [diff.strings[i] for i in diff.node_op[rows].tolist()]
    casts = int(np.count_nonzero(_are_casts(diff)[rows]))
    whole = whole_modules(diff, state)
    if casts:
        which = "casts among them" if casts < len(rows) else "all casts"
        return f" ({which})" if len(rows) > 1 else " (a cast)"
    if whole:
        inside = _num_inside(diff, set(whole), rows)
        share = "all of" if inside == len(rows) else "among them all of"
        return f", {share} {names_of(diff, whole)},"
    names = list(dict.fromkeys(short(op, 30) for op in ops))
    return f" ({', '.join(names)})" if len(names) <= 3 else ""


def _num_inside(diff: GraphDiff, modules: set[int], rows: npt.NDArray[np.intp]) -> int:
    """How many of ``rows`` belong to ``modules`` or to what these contain."""
    inside: list[bool] = []
    for index, module in enumerate(diff.modules):  # parents come first in the table
        inside.append(index in modules or (module.parent >= 0 and inside[module.parent]))
    return sum(inside[module] for module in diff.node_module[rows].tolist())


def _changed(diff: GraphDiff) -> list[str]:
    rows = np.flatnonzero(operations(diff) & (diff.node_state == CHANGED))
    if not len(rows):
        return []
    alike = (diff.node_shape[rows] == diff.node_shape_b[rows]) & (
        diff.node_dtype[rows] == diff.node_dtype_b[rows]
    )
    count = plural(len(rows), "backward node")
    if not alike.all():
        return [f"{count} changed"]
    return [f"{count} of equal shape and dtype hold{'s' * (len(rows) == 1)} other bytes"]


def num_casts(diff: GraphDiff) -> tuple[int, int]:
    """Backward nodes of A and of B that convert a dtype or a device, counted as in the browser.

    Counterpart of ``castsOf`` in ``extensions/views/src/diff/totals.ts``.
    """
    casts = _are_casts(diff)
    in_a, in_b = (int(np.count_nonzero(casts & (rows >= 0))) for rows in (diff.node_a, diff.node_b))
    return in_a, in_b


def _are_casts(diff: GraphDiff) -> npt.NDArray[np.bool_]:
    types = [number for number, text in enumerate(diff.strings) if text.startswith(_CAST)]
    return np.isin(diff.node_type, types)


def _casts(diff: GraphDiff) -> list[str]:
    before, after = num_casts(diff)
    return [f"casts went from {before:,} to {after:,}"] if before != after else []


def bytes_sentence(diff: GraphDiff) -> str:
    """How the bytes saved for backward changed."""
    before, after = diff.a.saved_bytes, diff.b.saved_bytes
    if before == after:
        return f"Bytes saved for backward stayed at {byte_size(after)}."
    verb = "fell" if after < before else "rose"
    share = f" ({(after - before) / before:+.1%})".replace("-", "−") if before else ""
    sizes = f"from {byte_size(before)} to {byte_size(after)}"
    if byte_size(before) == byte_size(after):
        change = byte_size(abs(after - before))
        return f"Bytes saved for backward {verb} by {change}, to {byte_size(after)}."
    return f"Bytes saved for backward {verb} {sizes}{share}."
