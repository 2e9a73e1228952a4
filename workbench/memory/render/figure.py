"""The memory chart as a matplotlib figure, for papers and slides."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from workbench.memory.reading.chart import category_names, to_chart
from workbench.memory.reading.text import (
    empty_sentence,
    format_bytes,
    is_empty,
    kind_of_peak,
    shorten,
)
from workbench.memory.render.limits import Limits, limits_of
from workbench.memory.render.svg import BAD, COLOURS, axis_top
from workbench.records import CATEGORIES, MemoryChart, MemoryRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = (".png", ".pdf", ".svg")
"""File suffixes of the formats in which a figure is saved."""


def to_figure(record: MemoryRecord) -> Figure:
    """Draw stacked areas over events, with phases and the peak marked; no display is needed."""
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
    """Return the figure as a file's bytes; ``form`` is one of `PICTURES` without its dot."""
    page = io.BytesIO()
    to_figure(record).savefig(page, dpi=150, format=form)
    return page.getvalue()


def draw_categories(axes: Axes, chart: MemoryChart) -> None:
    """Draw the bytes of each category, stacked, and a mark at the peak."""
    layers = chart.bytes.reshape(len(CATEGORIES), chart.num_points)
    used = np.flatnonzero(layers.any(axis=1))
    axes.stackplot(
        np.arange(chart.num_points),
        layers[used],
        step="post",
        colors=[COLOURS[row] for row in used],
        labels=[f"{category_names()[row]} {format_bytes(chart.at_peak[row])}" for row in used],
    )
    axes.plot([chart.peak_point], [chart.peak_bytes], "kv", clip_on=False)
    axes.set_xticks([])
    axes.set_xlim(0, max(chart.num_points - 1, 1))


def scale(axes: Axes, top: float, parts: int) -> None:
    """Scale the axis to bytes from 0 to ``top``, divided into ``parts`` steps."""
    ticks = [top * part / parts for part in range(parts + 1)]
    axes.set_ylim(0, top)
    axes.set_yticks(ticks, [format_bytes(tick) for tick in ticks])


def plain(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters, with nothing read as a formula."""
    return shorten(text, width).replace("$", r"\$")


def _draw(axes: Axes, record: MemoryRecord) -> None:
    chart = to_chart(record)
    draw_categories(axes, chart)
    for phase in chart.phases:
        axes.axvline(phase.start, color="0.5", linewidth=0.8)
        axes.annotate(phase.name, (phase.start, 1.0), xycoords=("data", "axes fraction"),
                      xytext=(3, 3), textcoords="offset points", fontsize="small")  # fmt: skip
    kind, where = kind_of_peak(record), plain(chart.peak_label, 40)
    axes.set_title(
        f"{kind} {format_bytes(chart.peak_bytes)} {where}".rstrip(), pad=18, fontsize="medium"
    )
    axes.set_xlabel("time: allocations and frees in order")
    limits = limits_of(record, chart)
    scale(axes, axis_top(limits.top), 4)
    _draw_limits(axes, chart, limits)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], title="at the peak", loc="center left",
                bbox_to_anchor=(1.01, 0.5), frameon=False)  # fmt: skip


def _draw_limits(axes: Axes, chart: MemoryChart, limits: Limits) -> None:
    """Draw reserved bytes, the GPU's limit, the interval of a prediction, and refused requests."""
    if chart.reserved_bytes >= 0:
        label = f"reserved {format_bytes(chart.reserved_bytes)}"
        if limits.reserved is None:
            axes.axhline(
                chart.reserved_bytes, color="k", linestyle="--", linewidth=0.8, label=label
            )
        else:
            axes.step(np.arange(chart.num_points), limits.reserved, where="post", color="k",
                      linewidth=0.8, label=label)  # fmt: skip
    if limits.interval is not None:
        low, high = limits.interval
        axes.errorbar([chart.peak_point], [low], yerr=[[0], [high - low]], color="k", capsize=3)
    if limits.gpu_bytes >= 0:
        label = f"{plain(limits.gpu, 30)} {format_bytes(limits.gpu_bytes)} usable"
        level = limits.gpu_bytes if limits.shows_gpu else np.nan
        label = label if limits.shows_gpu else f"{label}, above"
        axes.axhline(level, color=BAD, linestyle="--", linewidth=1, label=label)
    if limits.refused:
        points, levels = zip(*((one.point, one.level) for one in limits.refused), strict=True)
        axes.plot(
            points,
            levels,
            "X",
            color=BAD,
            clip_on=False,
            label=f"refused {format_bytes(limits.refused[-1].num_bytes)}",
        )
