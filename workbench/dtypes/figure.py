"""Figure of the share of each type in FLOPs of products and elements of all results, by phase."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from workbench.dtypes.text import heading, lines_of
from workbench.records.dtypes import DTYPE_PHASES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.records.dtypes import DtypeRecord

_COLOURS = ("#2f6fb3", "#b8651b", "#5b7f3a", "#7c5cd6", "#a03c3c", "#4f7f86")
_HATCHES = ("", "//", "..", "xx", "\\\\", "++")
"""Hatches, to distinguish types without colour."""


def types_figure(record: DtypeRecord) -> Figure:
    """Plot two bars per phase, on a new figure that is not registered with pyplot."""
    from matplotlib.figure import Figure

    lines = [line for line in lines_of(record.rows) if line.kind == "computes"]
    bars: list[tuple[str, Counter[str]]] = []
    for phase in DTYPE_PHASES:
        for unit in ("flops", "elements"):
            counts: Counter[str] = Counter()
            for line in lines:
                if line.phase == phase:
                    counts[line.computes] += getattr(line, unit)
            if counts.total():
                named = "FLOPs of products" if unit == "flops" else "elements of results"
                bars.append((f"{phase}, {named}", counts))
    types = sorted({name for _, counts in bars for name in counts})
    figure = Figure(figsize=(8, 1.4 + 0.4 * max(len(bars), 1)), layout="constrained")
    axes = figure.add_subplot()
    left = [0.0] * len(bars)
    for number, name in enumerate(types):
        shares = [100 * counts[name] / counts.total() for _, counts in bars]
        axes.barh(
            range(len(bars)),
            shares,
            left=left,
            label=name,
            color=_COLOURS[number % len(_COLOURS)],
            hatch=_HATCHES[number % len(_HATCHES)],
            edgecolor="white",
        )
        left = [start + share for start, share in zip(left, shares, strict=True)]
    axes.set_yticks(range(len(bars)), [label for label, _ in bars])
    axes.invert_yaxis()
    axes.set_xlabel("%")
    axes.set_xlim(0, 100)
    axes.set_title(heading(record), fontsize=10, loc="left", parse_math=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if types:
        figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=4)
    return figure
