"""Style of a box or a link in the static picture: how it shows its change from A to B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.graph.core.number_format import BYTE_UNITS, byte_size, fixed
from workbench.graph.core.text_width import fitted, text_width
from workbench.records import DIFF_STATES, GraphDiff

if TYPE_CHECKING:
    from workbench.graph.render.layout import Link
    from workbench.graph.render.module_boxes import Box
    from workbench.records import GraphRecord

SAME, REMOVED, ADDED, CHANGED = range(len(DIFF_STATES))
SIGNS = {REMOVED: "−", ADDED: "+", CHANGED: "≠"}
COLOURS = {REMOVED: "#d1495b", ADDED: "#27925a", CHANGED: "#b27409"}
"""Each has a contrast of at least 3.5 : 1 on white and on black; never the only sign."""


@dataclass(frozen=True)
class Mark:
    """Change of a box: one state, and counts if its operations have different states."""

    state: int = SAME
    counts: str = ""
    """``−3 +1`` if some operations were removed and some added; empty if all share the state."""
    detail: str = ""
    """Change of the last operation, ``float32 → bfloat16``; empty if nothing changed."""
    size: str = ""
    """Bytes saved in A and B, ``8.0 → 4.0 MiB``; one size if they are equal."""


def mark_of(record: GraphRecord, box: Box) -> Mark:
    """The mark of ``box``; only its size if the record is not a diff."""
    if not isinstance(record, GraphDiff):
        return Mark(size=byte_size(box.saved_bytes) if box.saved_bytes else "")
    states = record.node_state[box.rows].tolist()
    present = set(states)
    state = present.pop() if len(present) == 1 else CHANGED
    counts = [f"{sign}{states.count(of)}" for of, sign in SIGNS.items() if of in states]
    in_a = record.node_saved_bytes[box.rows][record.node_a[box.rows] >= 0].sum()
    in_b = record.node_saved_bytes_b[box.rows][record.node_b[box.rows] >= 0].sum()
    size = {REMOVED: _size(int(in_a)), ADDED: _size(int(in_b))}.get(state)
    return Mark(
        state=state,
        counts=" ".join(counts) if len(set(states)) > 1 else "",
        detail=_detail(record, box.rows[-1]),
        size=_change(int(in_a), int(in_b)) if size is None else size,
    )


def box_texts(box: Box, mark: Mark) -> tuple[str, str]:
    """Both lines of a box, cut to the room that size and counts leave in its 174 px."""
    label = f"{box.label} ↻" if box.repeats else box.label
    beside_size = 174 - text_width(f" {mark.size}" if mark.size else "", 11)
    beside_counts = 174 - text_width(f" {mark.counts}" if mark.counts else "", 11)
    detail = fitted(mark.detail or box.detail, beside_counts, 11)
    return fitted(label, beside_size, 12, bold=True), detail


def _detail(record: GraphDiff, row: int) -> str:
    if record.node_state[row] != CHANGED:
        return ""
    dtype = (record.node_dtype[row], record.node_dtype_b[row])
    shape = (record.node_shape[row], record.node_shape_b[row])
    changed = [pair for pair in (shape, dtype) if pair[0] != pair[1]]
    return f"{record.strings[changed[0][0]]} → {record.strings[changed[0][1]]}" if changed else ""


def link_state(record: GraphRecord, link: Link) -> int:
    """``REMOVED`` or ``ADDED`` if all edges of ``link`` are, else ``SAME``."""
    if not isinstance(record, GraphDiff):
        return SAME
    states = set(record.edge_state[list(link.edges)].tolist())
    state = states.pop() if len(states) == 1 else SAME
    return state if state in (REMOVED, ADDED) else SAME


def _size(count: int) -> str:
    return byte_size(count) if count else ""


def _change(before: int, after: int) -> str:
    """``8.0 → 4.0 MiB``, in the unit of the larger."""
    if byte_size(before) == byte_size(after):
        return _size(before)
    if before == 0:
        return f"0 → {byte_size(after)}"
    number, _, unit = byte_size(max(before, after)).partition(" ")
    scale = 1024.0 ** BYTE_UNITS.index(unit)
    other = min(before, after) / scale
    text = fixed(other, 0 if unit == "B" or other >= 99.95 or not other else 1)
    return f"{text} → {number} {unit}" if before < after else f"{number} → {text} {unit}"
