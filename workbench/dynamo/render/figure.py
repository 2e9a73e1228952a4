"""Compile time by region and phase, as a matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.dynamo.render.html import COLOURS
from workbench.dynamo.render.text import heading, phase_names, seconds, summary

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.figure import Figure

    from workbench.records import CompileRecord

_MOST_ROWS = 24
_LONGEST_LABEL = 42


def report_figure(record: CompileRecord) -> Figure:
    """Plot one bar per region, on a new figure that is not registered with pyplot."""
    from matplotlib.figure import Figure

    times = seconds_by_region(record)
    rows = np.argsort(-times.sum(axis=1), kind="stable")[:_MOST_ROWS]
    figure = Figure(figsize=(8, 1.6 + 0.34 * max(len(rows), 1)), layout="constrained")
    axes = figure.add_subplot()
    left = np.zeros(len(rows))
    for phase, name in enumerate(phase_names(record)):
        width = times[rows, phase]
        named = f"{name} {seconds(float(times[:, phase].sum()))}"
        axes.barh(np.arange(len(rows)), width, left=left, color=COLOURS[phase], label=named)
        left += width
    axes.set_yticks(np.arange(len(rows)), [_label(record, int(row)) for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("seconds of compiling")
    axes.set_title(f"{heading(record)}\n{_short_summary(record)}", fontsize=10, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if len(rows):
        axes.legend(fontsize=8, frameon=False, loc="lower right")
    return figure


def seconds_by_region(record: CompileRecord) -> npt.NDArray[np.float64]:
    """Return ``[num_regions, 4]``: seconds by phase, in the order of `PHASES`."""
    columns = (
        record.compilation_dynamo_s,
        record.compilation_autograd_s,
        record.compilation_inductor_s,
        record.compilation_compiler_s,
    )
    total = np.zeros((len(record.regions), len(columns)))
    for phase, column in enumerate(columns):
        np.add.at(total[:, phase], record.compilation_region, column)
    return total


def _label(record: CompileRecord, row: int) -> str:
    text = record.regions[row].label
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def _short_summary(record: CompileRecord) -> str:
    return summary(record).split("; compiled in", 1)[0] if record.regions else "nothing compiled"
