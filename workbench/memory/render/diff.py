"""Two recordings side by side: what grew at the peak, and what went away.

The peaks are compared, each at its own moment, because a peak is what has to fit. Blocks are not
matched one by one (two runs allocate different numbers of them); what they are for, and the module,
line and calls they belong to, are the same in both. A cell's line is identified by its text: a cell
that ran again has another number, and is the same code.

The browser's view of a diff reads the two records itself and computes the same numbers
(``extensions/views/src/memory-diff``); a test keeps the two consistent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.display import mime_bundle
from workbench.memory.files.from_stacks import is_own
from workbench.memory.reading.chart import category_names
from workbench.memory.reading.text import format_bytes, live_rows, peak_sentence, shorten
from workbench.records import MemoryRecord, SourceLine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BY = ("category", "module", "line", "stack")
"""Properties by which blocks can be grouped."""
NO_MODULE = "no module known"
NO_LINE = "no line known"
NO_STACK = "no stack known"
_LIBRARY = "library code alone"
_WIDTH = 44


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


@dataclass(frozen=True, eq=False)
class MemoryDiff:
    """The differences between A and B at their peaks."""

    a: MemoryRecord
    b: MemoryRecord

    @property
    def change(self) -> int:
        """Bytes by which B's peak is higher."""
        return self.b.peak_bytes - self.a.peak_bytes

    def by(self, kind: str) -> list[Change]:
        """Return every group, the largest change first; their changes add up to `change`.

        Args:
            kind: one of `BY`.

        Raises:
            ValueError: blocks cannot be grouped by that.
        """
        if kind not in BY:
            raise ValueError(f"blocks cannot be grouped by {kind!r}; it is one of {', '.join(BY)}")
        before, after = (_groups(record, _KINDS[kind](record)) for record in (self.a, self.b))
        return _rows(before, after)

    @cached_property
    def sentence(self) -> str:
        """The difference between the peaks, and the largest single change."""
        a, b = (format_bytes(record.peak_bytes) for record in (self.a, self.b))
        if self.change:
            direction = "higher" if self.change > 0 else "lower"
            head = f"B's peak is {format_bytes(abs(self.change))} {direction}, {a} to {b}"
        else:
            head = f"Both peaks are {a}"
        place = "module" if any(_has_modules(record) for record in (self.a, self.b)) else "line"
        sides = (_groups(record, _cause(record, place)) for record in (self.a, self.b))
        largest = next((row for row in _rows(*sides) if row.change), None)
        if largest is None:
            return f"{head}; what they are made of is the same."
        return f"{head}; the largest change is {signed(largest.change)} of {largest.what}."

    def figure(self) -> Figure:
        """Draw both timelines on one scale, and the largest changes, as a matplotlib figure."""
        from workbench.memory.render.diff_figure import diff_figure

        return diff_figure(self)

    def save(self, path: str | Path) -> Path:
        """Write a picture (``.png``, ``.pdf``, ``.svg``) or all numbers (``.csv``) to ``path``.

        Raises:
            ValueError: another suffix.
        """
        from workbench.memory.render.diff_figure import save_diff

        return save_diff(self, Path(path).expanduser())

    def __str__(self) -> str:
        lines = [self.sentence, "", f"A  {peak_sentence(self.a)}", f"B  {peak_sentence(self.b)}"]
        if self.a.device != self.b.device:
            lines.append(f"A is on {self.a.device}, B on {self.b.device}.")
        for kind in BY:
            changed = [row for row in self.by(kind) if row.change]
            if not changed:
                lines += ["", f"by {kind}: nothing differs"]
                continue
            lines += ["", f"{'by ' + kind:<{_WIDTH}}{'A':>12}{'B':>12}{'change':>12}"]
            for row in changed[:8]:
                sizes = "".join(f"{format_bytes(size):>12}" for size in (row.before, row.after))
                what = _ending(row.what) if kind == "stack" else shorten(row.what, _WIDTH - 2)
                lines.append(f"{what:<{_WIDTH}}{sizes}{signed(row.change):>12}")
            if len(changed) > 8:
                lines.append(f"and {len(changed) - 8:,} more")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return widget, static SVG and text; only the last two if no widget can run."""
        from workbench.memory.render.diff_svg import diff_html

        return mime_bundle(
            "memory_diff",
            {"a": self.a.to_bytes(), "b": self.b.to_bytes(), "error": ""},
            text=str(self),
            html=diff_html(self),
            options=options,
        )


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


def _ending(stack: str) -> str:
    """Return the innermost calls, which are the most informative."""
    line = shorten(stack, len(stack))
    return line if len(line) <= _WIDTH - 2 else f"…{line[-(_WIDTH - 3) :]}"


_KINDS: dict[str, Callable[[MemoryRecord], Naming]] = {
    "category": _by_category,
    "module": _by_module,
    "line": _by_line,
    "stack": _by_stack,
}
