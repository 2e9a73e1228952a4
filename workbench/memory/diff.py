"""Two recordings side by side: whose bytes at the peak grew, and whose went.

The peaks are compared, each at its own moment, because a peak is what has to fit. Blocks are not
matched one by one (two runs allocate in different numbers); what they are for, which module and
which line they belong to is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.memory.chart import category_names
from workbench.memory.describe import format_bytes, live_rows, peak_sentence, shorten
from workbench.records import MemoryRecord

BY = ("category", "module", "line")
"""What blocks can be grouped by."""
_NOWHERE = {"module": "outside every module", "line": "no line known"}
_WIDTH = 44


class Change(NamedTuple):
    """One group of blocks at both peaks."""

    what: str
    """A category, a module's path, or a line of code."""
    before: int
    """Bytes at A's peak."""
    after: int
    """Bytes at B's peak."""
    blocks_before: int
    blocks_after: int

    @property
    def change(self) -> int:
        """Bytes by which B has more."""
        return self.after - self.before


@dataclass(frozen=True, eq=False)
class MemoryDiff:
    """What differs between A and B at their peaks."""

    a: MemoryRecord
    b: MemoryRecord

    @property
    def change(self) -> int:
        """Bytes by which B's peak is higher."""
        return self.b.peak_bytes - self.a.peak_bytes

    def by(self, kind: str) -> list[Change]:
        """Every group, the largest change first; their changes add up to `change`.

        Args:
            kind: one of `BY`.

        Raises:
            ValueError: blocks cannot be grouped by that.
        """
        if kind not in BY:
            raise ValueError(f"blocks cannot be grouped by {kind!r}; it is one of {', '.join(BY)}")
        before, after = _groups(self.a, kind), _groups(self.b, kind)
        nothing = (0, 0)
        rows = [
            Change(what, *_columns(before.get(what, nothing), after.get(what, nothing)))
            for what in before | after
        ]
        return sorted(rows, key=lambda row: (-abs(row.change), row.what))

    def __str__(self) -> str:
        lines = [f"A  {peak_sentence(self.a)}", f"B  {peak_sentence(self.b)}"]
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
                change = f"{'+' if row.change > 0 else '−'}{format_bytes(abs(row.change))}"
                lines.append(f"{shorten(row.what, _WIDTH - 2):<{_WIDTH}}{sizes}{change:>12}")
            if len(changed) > 8:
                lines.append(f"and {len(changed) - 8:,} more")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def _columns(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int, int, int]:
    return before[0], after[0], before[1], after[1]


def _groups(record: MemoryRecord, kind: str) -> dict[str, tuple[int, int]]:
    """Group -> (bytes, blocks) at the peak."""
    live = live_rows(record, record.peak_event)
    column, name = _KINDS[kind](record)
    keys, rows = np.unique(column[live], return_inverse=True)
    sizes = np.zeros(len(keys), dtype=np.int64)
    np.add.at(sizes, rows, record.block_bytes[live])
    counts = np.bincount(rows, minlength=len(keys))
    found: dict[str, tuple[int, int]] = {}
    for key, size, count in zip(keys.tolist(), sizes.tolist(), counts.tolist(), strict=True):
        old = found.get(name(key), (0, 0))
        found[name(key)] = old[0] + size, old[1] + count
    return found


Column = npt.NDArray[np.integer]
_KINDS: dict[str, Callable[[MemoryRecord], tuple[Column, Callable[[int], str]]]] = {
    "category": lambda record: (record.block_category, lambda key: category_names()[key]),
    "module": lambda record: (
        record.block_module,
        lambda key: record.strings[key] or _NOWHERE["module"],
    ),
    "line": lambda record: (
        record.block_source,
        lambda key: record.sources[key].label if key >= 0 else _NOWHERE["line"],
    ),
}
