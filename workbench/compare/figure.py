"""A comparison as a matplotlib figure: step time with its spread, and loss curves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from workbench.compare.html import COLOUR, NEUTRAL
from workbench.compare.text import models, variants_of, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from workbench.records.compare import CompareRecord


def comparison_figure(record: CompareRecord) -> Figure:
    """Plot, for each model, every block's step time, and the loss over the steps all variants did.

    The figure is not registered with pyplot, so it is not shown twice.
    """
    from matplotlib.figure import Figure

    names = models(record)
    rows = max(len(names), 1)
    variants = max((len(variants_of(record, name)) for name in names), default=1)
    figure = Figure(figsize=(9, rows * (1.5 + 0.4 * variants)), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False, width_ratios=[3, 2])
    for line, name in enumerate(names):
        _times(axes[line][0], record, name)
        _losses(axes[line][1], record, name)
    return figure


def _times(axes: Axes, record: CompareRecord, model: str) -> None:
    variants = variants_of(record, model)
    first = record.arms.index(variants[0])
    for at, variant in enumerate(variants):
        blocks = record.block_seconds[record.block_arm == first + at] * 1e3
        if not len(blocks):
            continue
        colour = COLOUR.get(variant.verdict, NEUTRAL)
        jitter = np.linspace(-0.16, 0.16, len(blocks))
        axes.scatter(blocks, at + jitter, s=9, color=colour, alpha=0.45, linewidths=0)
        axes.plot(
            [variant.step_q1_s * 1e3, variant.step_q3_s * 1e3], [at, at], color=colour, linewidth=2
        )
        axes.plot([variant.step_s * 1e3], [at], marker="|", markersize=14, color=colour)
        word = "" if variant.verdict in ("", "baseline") else f"  {variant.verdict}"
        axes.annotate(
            word, (float(blocks.max()), at), xytext=(4, 0), textcoords="offset points",
            va="center", fontsize=8,
        )  # fmt: skip
    axes.set_yticks(range(len(variants)), [variant.modes for variant in variants])
    axes.set_ylim(len(variants) - 0.5, -0.5)
    axes.set_xlabel("ms a step (one dot a block; bar: quartiles)")
    axes.set_title(verdict(record, model), fontsize=9, loc="left", wrap=True)
    axes.set_xlim(left=0)
    _plain(axes)


def _losses(axes: Axes, record: CompareRecord, model: str) -> None:
    variants = variants_of(record, model)
    first = record.arms.index(variants[0])
    counts = [int((record.loss_arm == first + at).sum()) for at in range(len(variants))]
    shown = min((count for count in counts if count), default=0)
    for at, variant in enumerate(variants):
        values = record.loss_value[record.loss_arm == first + at][:shown]
        if len(values):
            line = "-" if math.isnan(variant.speedup) or variant.verdict == "baseline" else "--"
            axes.plot(np.arange(1, shown + 1), values, line, linewidth=1, label=variant.modes)
    axes.set_xlabel("step from the same weights")
    axes.set_ylabel("loss")
    if shown:
        axes.legend(fontsize=7, frameon=False)
    _plain(axes)


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
