"""The static picture as a matplotlib figure, for papers and slides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from workbench.graph.layout import CARD_HEIGHT, CARD_WIDTH, Card, Layout, layout
from workbench.graph.svg import BAR
from workbench.graph.wording import byte_size, heading, short, summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from workbench.records import GraphRecord

_PX_PER_INCH = 96


def graph_figure(record: GraphRecord) -> Figure:
    """Draw ``record`` on a new figure that pyplot does not know, so nothing shows it twice."""
    from matplotlib.figure import Figure

    placed = layout(record)
    size = (max(placed.width, 420) / _PX_PER_INCH, (placed.height + 40) / _PX_PER_INCH)
    figure = Figure(figsize=size)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, max(placed.width, 420))
    axes.set_ylim(placed.height, -40)
    axes.set_axis_off()
    _write(axes, 16, -24, heading(record), size=10, bold=True)
    _write(axes, 16, -6, summary(record), size=8)
    _links(axes, placed)
    for card in placed.cards:
        _card(axes, card, placed.max_bytes)
    return figure


def _links(axes: Axes, placed: Layout) -> None:
    for link in placed.links:
        xs, ys = zip(*placed.route(link), strict=True)
        width = 1 + 3 * math.sqrt(link.num_bytes / placed.max_flow)
        axes.plot(xs, ys, color="0.65", linewidth=width, solid_joinstyle="round", zorder=1)
        axes.plot([xs[-1]], [ys[-1] - 2], marker="v", color="0.45", markersize=4, zorder=2)


def _card(axes: Axes, card: Card, largest: int) -> None:
    from matplotlib.patches import FancyBboxPatch, Rectangle

    box = FancyBboxPatch(
        (card.x, card.y),
        CARD_WIDTH,
        CARD_HEIGHT,
        boxstyle="round,pad=0,rounding_size=6",
        facecolor="white",
        edgecolor="0.5",
        zorder=3,
    )
    axes.add_patch(box)
    bar = (CARD_WIDTH - 16) * card.saved_bytes / largest
    axes.add_patch(Rectangle((card.x + 8, card.y + 32), bar, 3, facecolor=BAR, zorder=4))
    _write(axes, card.x + 8, card.y + 9, card.label, size=8, bold=True)
    _write(axes, card.x + 8, card.y + 23, short(card.detail, 34), size=7)
    if card.saved_bytes:
        size = byte_size(card.saved_bytes)
        _write(axes, card.x + CARD_WIDTH - 8, card.y + 9, size, size=7, align="right")


def _write(
    axes: Axes, x: float, y: float, text: str, *, size: int, bold: bool = False, align: str = "left"
) -> None:
    axes.text(
        x,
        y,
        text,
        fontsize=size,
        fontweight="bold" if bold else "normal",
        horizontalalignment=align,
        verticalalignment="center",
        zorder=5,
        parse_math=False,  # a module may be called "$x$"
    )
