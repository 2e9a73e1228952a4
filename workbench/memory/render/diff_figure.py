"""A diff of two recordings as a file: a picture for papers and slides, or a table of numbers."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.memory.reading.chart import to_chart
from workbench.memory.reading.text import format_bytes, is_empty
from workbench.memory.render.diff_groups import BY, signed
from workbench.memory.render.figure import PICTURES, draw_categories, plain, scale
from workbench.memory.render.svg import axis_top
from workbench.records import CATEGORIES, MemoryRecord
from workbench.records.file import suffix_of
from workbench.trust import csv_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from workbench.memory.render.diff import MemoryDiff

_BARS = 8
MORE, LESS = "#B3261E", "#0B6B3A"
"""Colours of the bars of what grew and of what shrank."""


def diff_figure(diff: MemoryDiff) -> Figure:
    """Draw A above B on one scale, the largest changes beside them; no display is needed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(3, 2))
    top = axis_top(max(diff.a.peak_bytes, diff.b.peak_bytes, 1))
    for row, (name, record) in enumerate((("A", diff.a), ("B", diff.b))):
        _draw_side(figure.add_subplot(grid[row, 0]), name, record, top)
    _draw_bars(figure.add_subplot(grid[:, 1]), diff)
    figure.suptitle(plain(diff.sentence, 130), fontsize="medium")
    return figure


def save_diff(diff: MemoryDiff, path: Path) -> Path:
    """As `MemoryDiff.save`."""
    if suffix_of(path.name, (*PICTURES, ".csv"), "a memory diff") == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("by", "what", "a_bytes", "b_bytes", "change_bytes", "a_blocks",
                             "b_blocks"))  # fmt: skip
            for kind in BY:
                for row in diff.by(kind):
                    sizes = (row.before, row.after, row.change)
                    writer.writerow(
                        (kind, csv_cell(row.what), *sizes, row.blocks_before, row.blocks_after)
                    )
        return path
    diff_figure(diff).savefig(path, dpi=150)
    return path


def _draw_side(axes: Axes, name: str, record: MemoryRecord, top: float) -> None:
    axes.set_title(f"{name}  {plain(record.title, 60)}", loc="left", fontsize="small")
    axes.set_xticks([])
    scale(axes, top, 2)
    if is_empty(record):
        return
    chart = to_chart(record)
    draw_categories(axes, chart)
    label = f"peak {format_bytes(chart.peak_bytes)} {plain(chart.peak_label, 40)}".rstrip()
    axes.set_title(label, loc="right", fontsize="small")


def _draw_bars(axes: Axes, diff: MemoryDiff) -> None:
    """The largest changes by category, then by module."""
    rows = [row for row in diff.by("category") if row.change][: len(CATEGORIES)]
    rows += [row for row in diff.by("module") if row.change][: _BARS - min(len(rows), 4)]
    axes.set_title("change at the peak, B − A", loc="left", fontsize="small")
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.set_xticks([])
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)
    if not rows:
        axes.set_yticks([])
        axes.text(0, 0.5, " nothing differs", transform=axes.transAxes)
        return
    changes = [row.change for row in rows]
    places = range(len(rows))
    axes.barh(places, changes, color=[MORE if change > 0 else LESS for change in changes])
    axes.set_yticks(places, [plain(row.what, 28) for row in rows], fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.28)
    for place, change in zip(places, changes, strict=True):
        axes.annotate(signed(change), (change, place), xytext=(3 if change > 0 else -3, 0),
                      textcoords="offset points", va="center", fontsize="small",
                      ha="left" if change > 0 else "right")  # fmt: skip
