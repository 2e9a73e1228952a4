"""The memory chart as a matplotlib figure, for papers and slides."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from workbench.memory.chart import category_names, to_chart
from workbench.memory.describe import empty_sentence, format_bytes, is_empty, shorten
from workbench.memory.svg import COLOURS, axis_top
from workbench.records import CATEGORIES, MemoryRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def to_figure(record: MemoryRecord) -> Figure:
    """Stacked areas over events, phases and the peak marked; no display is needed to draw it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.add_subplot()
    if is_empty(record):
        axes.set_axis_off()
        axes.text(0.5, 0.5, empty_sentence(record), ha="center")
        return figure
    _draw(axes, record)
    return figure


def picture(record: MemoryRecord, form: str) -> bytes:
    """The figure as a file's bytes; ``form`` is one that matplotlib writes, ``png`` or ``pdf``."""
    page = io.BytesIO()
    to_figure(record).savefig(page, dpi=150, format=form)
    return page.getvalue()


def _draw(axes: Axes, record: MemoryRecord) -> None:
    chart = to_chart(record)
    layers = chart.bytes.reshape(len(CATEGORIES), chart.num_points)
    used = np.flatnonzero(layers.any(axis=1))
    x = np.arange(chart.num_points)
    axes.stackplot(
        x,
        layers[used],
        step="post",
        colors=[COLOURS[row] for row in used],
        labels=[f"{category_names()[row]} {format_bytes(chart.at_peak[row])}" for row in used],
    )
    for phase in chart.phases:
        axes.axvline(phase.start, color="0.5", linewidth=0.8)
        axes.annotate(phase.name, (phase.start, 1.0), xycoords=("data", "axes fraction"),
                      xytext=(3, 3), textcoords="offset points", fontsize="small")  # fmt: skip
    axes.plot([chart.peak_point], [chart.peak_bytes], "kv", clip_on=False)
    label = f"peak {format_bytes(chart.peak_bytes)} {shorten(chart.peak_label, 40)}".rstrip()
    axes.set_title(label.replace("$", r"\$"), pad=18, fontsize="medium")
    axes.set_xlabel("time: allocations and frees in order")
    axes.set_xlim(0, max(chart.num_points - 1, 1))
    axes.set_xticks([])
    top = axis_top(max(chart.peak_bytes, chart.reserved_bytes, 1))
    ticks = [top * part / 4 for part in range(5)]
    axes.set_ylim(0, top)
    axes.set_yticks(ticks, [format_bytes(tick) for tick in ticks])
    if chart.reserved_bytes >= 0:
        label = f"reserved {format_bytes(chart.reserved_bytes)}"
        axes.axhline(chart.reserved_bytes, color="k", linestyle="--", linewidth=0.8, label=label)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], title="at the peak", loc="center left",
                bbox_to_anchor=(1.01, 0.5), frameon=False)  # fmt: skip
