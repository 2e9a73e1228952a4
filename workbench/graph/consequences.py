"""What a diff comes to: operations and modules that left or joined, and bytes saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.graph.wording import byte_size, plural, short
from workbench.records import DIFF_STATES, NODE_KINDS

if TYPE_CHECKING:
    from workbench.records import GraphDiff

SAME, REMOVED, ADDED, CHANGED = range(len(DIFF_STATES))
_COMPILED = NODE_KINDS.index("compiled")


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
    """``block3, head and 2 more``; the root goes by its class."""
    names = [short(diff.modules[i].path or diff.modules[i].cls, 40) for i in modules]
    if len(names) > 4:
        names = [*names[:3], f"{len(names) - 3:,} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def consequences(diff: GraphDiff) -> str:
    """``9 operations (block3, head) left the graph; 1 operation joined the graph.``, in short."""
    rows = operations(diff)
    parts: list[str] = []
    for state, verb in ((REMOVED, "left"), (ADDED, "joined")):
        count = int(np.count_nonzero(rows & (diff.node_state == state)))
        if not count:
            continue
        whole = names_of(diff, whole_modules(diff, state))
        named = f"all of {whole}" if whole else _casts(diff, state, count)
        among = f", among them {named}," if whole else f" ({named})" * bool(named)
        parts.append(f"{plural(count, 'operation')}{among} {verb} the graph")
    changed = int(np.count_nonzero(rows & (diff.node_state == CHANGED)))
    if changed:
        parts.append(f"{plural(changed, 'operation')} changed")
    if not parts:
        parts.append("only parameters or connections differ")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _casts(diff: GraphDiff, state: int, count: int) -> str:
    """How many of the ``count`` operations that left or joined only change the dtype."""
    rows = np.flatnonzero(operations(diff) & (diff.node_state == state))
    types = [diff.strings[i] for i in diff.node_type[rows].tolist()]
    casts = sum(name.startswith("ToCopyBackward") for name in types)
    if casts == count:
        return "a cast" if count == 1 else "all casts"
    return f"{casts:,} of them casts" if casts else ""


def bytes_sentence(diff: GraphDiff) -> str:
    """How the bytes saved for backward changed."""
    before, after = diff.a.saved_bytes, diff.b.saved_bytes
    if before == after:
        return f"Bytes saved for backward stayed at {byte_size(after)}."
    verb = "fell" if after < before else "rose"
    share = f" ({(after - before) / before:+.1%})".replace("-", "−") if before else ""
    sizes = f"from {byte_size(before)} to {byte_size(after)}"
    return f"Bytes saved for backward {verb} {sizes}{share}."
