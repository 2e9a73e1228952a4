"""Two recordings side by side: what grew at the peak, and what went away.

The peaks are compared, each at its own moment, because a peak is what has to fit
(`workbench.memory.render.diff_groups` compares them).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.display import mime_bundle
from workbench.memory.reading.text import format_bytes, peak_sentence, shorten
from workbench.memory.render.diff_groups import BY, Change, changes, largest_change, signed
from workbench.records import MemoryRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 44


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
        return changes(self.a, self.b, kind)

    @cached_property
    def sentence(self) -> str:
        """The difference between the peaks, and the largest single change."""
        a, b = (format_bytes(record.peak_bytes) for record in (self.a, self.b))
        if self.change:
            direction = "higher" if self.change > 0 else "lower"
            head = f"B's peak is {format_bytes(abs(self.change))} {direction}, {a} to {b}"
        else:
            head = f"Both peaks are {a}"
        largest = largest_change(self.a, self.b)
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


def _ending(stack: str) -> str:
    """Return the innermost calls, which are the most informative."""
    line = shorten(stack, len(stack))
    return line if len(line) <= _WIDTH - 2 else f"…{line[-(_WIDTH - 3) :]}"
