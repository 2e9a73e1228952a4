"""What the blocks at two peaks are for, and by how much each kind of them differs.

Blocks are not matched one by one (two runs allocate different numbers of them); what they are for,
and the module, line and calls they belong to, are the same in both. A cell's line is identified by
its text: a cell that ran again has another number, and is the same code.

The browser's view of a diff reads the two records itself and computes the same numbers
(``extensions/views/src/memory-diff``); a test keeps the two consistent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.memory.files.from_stacks import is_own
from workbench.memory.reading.chart import category_names
from workbench.memory.reading.text import format_bytes, live_rows
from workbench.records import MemoryRecord, SourceLine

BY = ("category", "module", "line", "stack")
"""Properties by which blocks can be grouped."""
NO_MODULE = "no module known"
NO_LINE = "no line known"
NO_STACK = "no stack known"
_LIBRARY = "library code alone"


class Change(NamedTuple):
    """One group of blocks at both peaks."""

    what: str
    """A category, a module's path, a line of code, or calls from the outermost inwards."""
    before: int
    """Bytes at A's peak."""
    after: int
    """Bytes at B's peak."""
    blocks_before: int
    blocks_after: int

    @property
    def change(self) -> int:
        """Additional bytes in B."""
        return self.after - self.before


def changes(a: MemoryRecord, b: MemoryRecord, kind: str) -> list[Change]:
    """Return every group, the largest change first; their changes add up to that of the peaks.

    Args:
        a: the recording that is compared with.
        b: the other recording.
        kind: one of `BY`.

    Raises:
        ValueError: blocks cannot be grouped by that.
    """
    if kind not in BY:
        raise ValueError(f"blocks cannot be grouped by {kind!r}; it is one of {', '.join(BY)}")
    before, after = (_groups(record, _KINDS[kind](record)) for record in (a, b))
    return _rows(before, after)


def largest_change(a: MemoryRecord, b: MemoryRecord) -> Change | None:
    """Return the largest change of a category in a module, or on a line if no module is known."""
    place = "module" if any(_has_modules(record) for record in (a, b)) else "line"
    before, after = (_groups(record, _cause(record, place)) for record in (a, b))
    return next((row for row in _rows(before, after) if row.change), None)


def signed(change: int) -> str:
    """Format a change as ``+3.0 MiB``, with a true minus sign; ``0 B`` for none."""
    sign = "" if change == 0 else "+" if change > 0 else "−"
    return f"{sign}{format_bytes(abs(change))}"


def place_of(source: SourceLine) -> str:
    """Return ``model.py:11``; ``line 3 of a cell: x = f(y)`` for a line of a notebook."""
    if source.cell is None:
        return source.label
    return f"line {source.line} of a cell: {source.text}".rstrip(": ")


Column = npt.NDArray[np.integer]
Naming = tuple[Column, Callable[[int], str]]
"""A key for each block, and the function that names a key."""
Groups = dict[str, tuple[int, int]]


def _rows(before: Groups, after: Groups) -> list[Change]:
    nothing = (0, 0)
    rows: list[Change] = []
    for what in before | after:
        a, b = before.get(what, nothing), after.get(what, nothing)
        rows.append(Change(what, a[0], b[0], a[1], b[1]))
    return sorted(rows, key=lambda row: (-abs(row.change), row.what))


def _groups(record: MemoryRecord, naming: Naming) -> Groups:
    """Return group -> (bytes, blocks) at the peak."""
    live = live_rows(record, record.peak_event)
    column, name = naming
    keys, rows = np.unique(column[live], return_inverse=True)
    sizes = np.zeros(len(keys), dtype=np.int64)
    np.add.at(sizes, rows, record.block_bytes[live])
    counts = np.bincount(rows, minlength=len(keys))
    found: Groups = {}
    for key, size, count in zip(keys.tolist(), sizes.tolist(), counts.tolist(), strict=True):
        old = found.get(name(key), (0, 0))
        found[name(key)] = old[0] + size, old[1] + count
    return found


def _by_category(record: MemoryRecord) -> Naming:
    return record.block_category, lambda key: category_names()[key]


def _by_module(record: MemoryRecord) -> Naming:
    return record.block_module, lambda key: record.strings[key] or NO_MODULE


def _by_line(record: MemoryRecord) -> Naming:
    return record.block_source, lambda key: place_of(record.sources[key]) if key >= 0 else NO_LINE


def _by_stack(record: MemoryRecord) -> Naming:
    return record.block_call, lambda key: _stack(record, key) if key >= 0 else NO_STACK


def _stack(record: MemoryRecord, call: int) -> str:
    """Return the calls in the user's own files, from the outermost inwards."""
    names: list[str] = []
    while call >= 0:
        source = record.sources[int(record.call_source[call])]
        if source.cell is not None or is_own(source.filename):
            names.append(f"{source.function} {place_of(source)}".strip())
        call = int(record.call_parent[call])
    return " › ".join(reversed(names)) or _LIBRARY


def _cause(record: MemoryRecord, place: str) -> Naming:
    """Group by category and place together."""
    column, name = _KINDS[place](record)
    keys = record.block_category.astype(np.int64) * (1 << 32) + column + 1

    def name_of(key: int) -> str:
        category, where = category_names()[key >> 32], name((key & 0xFFFFFFFF) - 1)
        return category if where in (NO_MODULE, NO_LINE) else f"{category} in {where}"

    return keys, name_of


def _has_modules(record: MemoryRecord) -> bool:
    return any(record.strings[row] for row in np.unique(record.block_module).tolist())


_KINDS: dict[str, Callable[[MemoryRecord], Naming]] = {
    "category": _by_category,
    "module": _by_module,
    "line": _by_line,
    "stack": _by_stack,
}
