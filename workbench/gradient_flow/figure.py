"""A gradient flow as a matplotlib figure: modules by steps, colour by norm.

The figure is made without pyplot, so it can be drawn on any thread and is not shown twice. It also
avoids matplotlib's mathtext, whose parser is shared by all threads and cannot be used by two at
once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.gradient_flow.heat_map import HeatMap, heat_map_of
from workbench.trust import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path

    from workbench.records import GradientFlow

_SCALE = "f6f4fd ddd8fd c4bbf9 ad9ff3 9684e9 8069db 6a4fc9 5635b3 431c99"
_BAD = "#b3261e"
_MAX_CELLS = 200
_MAX_LABEL = 34
_WIDTH_IN = 9.0


def flow_figure(record: GradientFlow, *, dpi: int = 110) -> Figure:
    """Draw ``record`` on a new figure, in a light theme on white."""
    from matplotlib.figure import Figure

    heat_map = heat_map_of(record, _MAX_CELLS)
    height = 0.21 * max(len(record.rows), 3) + 1.35
    figure = Figure(figsize=(_WIDTH_IN, height), dpi=dpi, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(_title(record), fontsize=10, loc="left", parse_math=False)
    axes.set_facecolor("white")
    if not heat_map.norm.size:
        axes.text(0.5, 0.5, "no step was sampled yet", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return figure
    image = _cells(axes, heat_map)
    _gaps(axes, heat_map)
    _signs(axes, heat_map)
    _axes(axes, record, heat_map)
    _legend(figure.colorbar(image, ax=axes, pad=0.01, aspect=12, shrink=0.9), heat_map)
    return figure


def _legend(bar: Any, heat_map: HeatMap) -> None:
    low, high = heat_map.limits
    ticks = [low, (low * high) ** 0.5, high] if high > low else [low]
    bar.set_ticks(ticks, labels=[f"{tick:.3g}" for tick in ticks])
    bar.minorticks_off()
    bar.set_label("gradient norm (log)", fontsize=8)
    bar.ax.tick_params(labelsize=8)


def _title(record: GradientFlow) -> str:
    steps = f"steps {record.step[0]:,} to {record.step[-1]:,}" if len(record.step) else "no steps"
    return f"{' '.join(record.title.split())[:80]}: L2 norm of a module's gradients, {steps}"


def _cells(axes: Axes, heat_map: HeatMap) -> Any:
    from matplotlib.colors import ListedColormap, LogNorm

    low, high = heat_map.limits
    colours = ListedColormap([f"#{colour}" for colour in _SCALE.split()])
    shown = np.ma.masked_where(~(np.isfinite(heat_map.norm) & (heat_map.norm > 0)), heat_map.norm)
    norm = LogNorm(low, high if high > low else low * 1.01)
    return axes.imshow(shown, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")


def _gaps(axes: Axes, heat_map: HeatMap) -> None:
    """Hatch each cell from below by the share of its steps at which the module got no gradient."""
    from matplotlib.collections import PolyCollection

    boxes: list[list[tuple[float, float]]] = []
    for row, shares in enumerate(heat_map.missing):
        edges = np.flatnonzero(np.diff(shares, prepend=np.nan, append=np.nan) != 0)
        for start, end in pairwise(edges):
            if shares[start] > 0:
                left, right, below = start - 0.5, end - 0.5, row + 0.5
                top = below - shares[start]
                boxes.append([(left, below), (right, below), (right, top), (left, top)])
    if boxes:
        axes.add_collection(
            PolyCollection(
                boxes, facecolor="#f4f4f6", edgecolor="#a6a6ae", linewidth=0, hatch="//////"
            )
        )


def _signs(axes: Axes, heat_map: HeatMap) -> None:
    """Mark non-finite gradients with a cross, and gradients that were all zero with a small 0."""
    # one line of markers per kind: one artist per marker would take seconds where there are many
    rows, columns = np.nonzero(np.isposinf(heat_map.norm))
    axes.plot(columns, rows, "X", color=_BAD, markersize=7, markeredgecolor="white")
    if heat_map.norm.shape[1] <= 80:
        rows, columns = np.nonzero(heat_map.norm == 0)
        axes.plot(columns, rows, linestyle="none", marker=_zero(), color="0.4", mew=0, ms=5)


def _zero() -> Path:
    """A small 0 as a marker. ``"$0$"`` would be parsed by matplotlib's one mathtext parser."""
    from matplotlib.path import Path
    from matplotlib.textpath import TextPath

    text = TextPath((0, 0), "0")
    box = text.get_extents()
    return Path(np.asarray(text.vertices) - np.add(box.min, box.max) / 2, text.codes)


def _axes(axes: Axes, record: GradientFlow, heat_map: HeatMap) -> None:
    count = heat_map.norm.shape[1]
    ticks = np.unique(np.linspace(0, count - 1, min(count, 9)).round().astype(int))
    axes.set_xticks(ticks, [f"{heat_map.first_step[at]:,}" for at in ticks], fontsize=8)
    labels = [_short(row.label) for row in record.rows]
    axes.set_yticks(range(len(labels)), labels, fontsize=8, parse_math=False)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(length=2)
    for side in axes.spines.values():
        side.set_visible(False)
    parts = ["step; hatched: no gradient, the module did not run"]
    if np.isposinf(heat_map.norm).any():
        parts.append("✕: not finite")
    axes.set_xlabel("; ".join(parts), fontsize=8)


def _short(label: str) -> str:
    line = printable(label[:1000])
    if len(line) <= _MAX_LABEL:
        return line
    return f"{line[: _MAX_LABEL // 3]}…{line[-(_MAX_LABEL - _MAX_LABEL // 3 - 1) :]}"
