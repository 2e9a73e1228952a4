"""A confusion matrix as a picture, drawn without pyplot so that any thread can do it."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

_DPI = 110
_MAX_NUMBERED = 30
"""Maximum number of classes for which every cell shows its count."""
_MAX_TICKS = 20


def draw_confusion(counts: npt.NDArray[np.int64], title: str) -> tuple[bytes, tuple[int, int]]:
    """Return PNG bytes and (width, height) in pixels.

    Args:
        counts: ``[classes, classes]``, rows = true class.
        title: title shown above the matrix.

    Cells are coloured by their share of the true class, so that small classes are readable too.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    classes = len(counts)
    side = min(max(0.34 * classes + 1.6, 3.6), 9.0)
    figure = Figure(figsize=(side, side), dpi=_DPI, facecolor="white", layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("predicted class", fontsize=9)
    axes.set_ylabel("true class", fontsize=9)
    ticks = list(range(0, classes, max(1, -(-classes // _MAX_TICKS))))
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.tick_params(labelsize=8)
    if classes <= _MAX_NUMBERED:
        _number(axes, counts, share)
    buffer = BytesIO()
    canvas.print_png(buffer)
    width, height = canvas.get_width_height()
    return buffer.getvalue(), (width, height)


def _number(axes: Any, counts: npt.NDArray[np.int64], share: npt.NDArray[np.float64]) -> None:
    size = 8 if len(counts) <= 12 else 6
    for row, column in zip(*np.nonzero(counts), strict=True):
        axes.text(
            column,
            row,
            str(counts[row, column]),
            ha="center",
            va="center",
            fontsize=size,
            color="white" if share[row, column] > 0.5 else "black",
        )


def accuracy_title(counts: npt.NDArray[np.int64], epoch: int) -> str:
    """Return a title like ``epoch 3: 97.2 % of 360 right``."""
    total = int(counts.sum())
    if total == 0:
        return f"epoch {epoch}: no samples"
    return f"epoch {epoch}: {100 * float(np.trace(counts)) / total:.1f} % of {total:,} right"
