"""The static picture as a matplotlib figure, for papers and slides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from workbench.graph.core.number_format import heading, short
from workbench.graph.render.diff_style import (
    COLOURS,
    REMOVED,
    SAME,
    SIGNS,
    Mark,
    box_texts,
    link_state,
    mark_of,
)
from workbench.graph.render.layout import BOX_HEIGHT, BOX_WIDTH, Layout, Link, layout
from workbench.graph.render.svg import BAR, heading_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from workbench.graph.render.module_boxes import Box
    from workbench.records import GraphRecord

_PX_PER_INCH = 96
_PX_PER_LETTER = 5.6


def graph_figure(record: GraphRecord) -> Figure:
    """Draw ``record`` on a new figure that pyplot does not know, so that it is not shown twice.

    For a `GraphDiff` it is the union: removed parts dashed and "−", added ones solid and "+".
    """
    from matplotlib.figure import Figure

    placed = layout(record)
    width = max(placed.width, 420)
    lines = heading_lines(record, int((width - 32) / _PX_PER_LETTER))
    head = 24 + 16 * len(lines)
    figure = Figure(figsize=(width / _PX_PER_INCH, (placed.height + head) / _PX_PER_INCH))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(placed.height, -head)
    axes.set_axis_off()
    title = short(heading(record), int((width - 32) / 8.6))
    _write(axes, 16, 16 - head, title, size=10, bold=True)
    for number, line in enumerate(lines, 1):
        _write(axes, 16, 18 + 16 * number - head, line, size=8)
    for link in placed.links:
        _link(axes, placed, link, link_state(record, link))
    for box in placed.boxes:
        _box(axes, box, placed.max_bytes, mark_of(record, box))
    return figure


def _link(axes: Axes, placed: Layout, link: Link, state: int) -> None:
    xs, ys = zip(*placed.route(link), strict=True)
    width = 1 + 3 * math.sqrt(link.num_bytes / placed.max_flow)
    colour = COLOURS.get(state, "0.65")
    if state == REMOVED:  # a faint trace of a value that no longer flows
        axes.plot(xs, ys, color=colour, alpha=0.17, linewidth=max(width, 4), zorder=1)
        axes.plot(xs, ys, color=colour, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
    else:
        axes.plot(xs, ys, color=colour, linewidth=width, solid_joinstyle="round", zorder=1)
    arrow = colour if state != SAME else "0.45"
    axes.plot([xs[-1]], [ys[-1] - 2], marker="v", color=arrow, markersize=4, zorder=2)


def _box(axes: Axes, box: Box, largest: int, mark: Mark) -> None:
    from matplotlib.patches import FancyBboxPatch, Rectangle

    label, detail = box_texts(box, mark)
    patch = FancyBboxPatch(
        (box.x, box.y),
        BOX_WIDTH,
        BOX_HEIGHT,
        boxstyle="round,pad=0,rounding_size=6",
        facecolor="white",
        edgecolor=COLOURS.get(mark.state, "0.5"),
        linestyle="--" if mark.state == REMOVED else "-",
        linewidth=1 if mark.state == SAME else 1.6,
        zorder=3,
    )
    axes.add_patch(patch)
    bar = (BOX_WIDTH - 16) * box.saved_bytes / largest
    axes.add_patch(Rectangle((box.x + 8, box.y + 32), bar, 3, facecolor=BAR, zorder=4))
    right = box.x + BOX_WIDTH - 8
    _write(axes, box.x + 8, box.y + 9, label, size=8, bold=True)
    _write(axes, box.x + 8, box.y + 23, detail, size=7)
    _write(axes, right, box.y + 9, mark.size, size=7, align="right")
    _write(axes, right, box.y + 23, mark.counts, size=7, align="right")
    if mark.state in SIGNS:
        axes.plot([box.x], [box.y], marker="o", markersize=10, color=COLOURS[mark.state], zorder=6)
        _write(axes, box.x, box.y, SIGNS[mark.state], size=8, bold=True, align="center", ink="w")


def _write(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    *,
    size: int,
    bold: bool = False,
    align: str = "left",
    ink: str = "black",
) -> None:
    axes.text(
        x,
        y,
        text,
        fontsize=size,
        color=ink,
        fontweight="bold" if bold else "normal",
        horizontalalignment=align,
        verticalalignment="center",
        zorder=5 if align != "center" else 7,
        parse_math=False,  # a module may be called "$x$"
    )
