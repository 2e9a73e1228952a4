"""A `MemoryRecord` reduced to what a chart draws; the peak is always included."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from workbench.records import CATEGORIES, MemoryChart, MemoryRecord, Phase

MOST_POINTS = 400


def to_chart(record: MemoryRecord, most_points: int = MOST_POINTS) -> MemoryChart:
    """Return the chart of ``record`` with at most ``most_points`` points.

    A point stands for a range of events and shows the composition at the moment in the range when
    the most bytes were live; ranges keep to phases as far as there are enough points.
    """
    series = record.series()
    edges = edges_of(series.shape[1], most_points)
    rows = _highest(series.sum(axis=0), edges)
    points = series[:, rows]
    peak = int(np.searchsorted(edges, record.peak_event + 1, side="right") - 1)
    return MemoryChart(
        step=record.step,
        device=record.device,
        basis=record.basis,
        num_points=len(rows),
        bytes=points.astype(np.float32).ravel(),
        phases=_phases_in_points(record.phases, edges),
        peak_point=peak if rows.size else -1,
        peak_bytes=record.peak_bytes,
        peak_label=peak_label(record),
        at_peak=tuple(int(value) for value in series[:, record.peak_event + 1]),
        reserved_bytes=record.reserved_bytes,
    )


def peak_label(record: MemoryRecord) -> str:
    """Locate the peak: ``backward of head``, ``optimizer``, ``before the first allocation``."""
    event = record.peak_event
    if event < 0:
        return "before the first allocation" if len(record.event_time_us) else ""
    phase = next((p.name for p in record.phases if p.start <= event < p.end), "")
    rows = np.flatnonzero(record.block_start == event)
    module = record.strings[record.block_module[rows[0]]] if rows.size else ""
    if phase == "optimizer" or not module:
        return phase
    return f"{phase} of {module}" if phase else module


def edges_of(num_columns: int, most_points: int) -> npt.NDArray[np.int64]:
    """Return the first column of each range into which ``most_points`` points divide a series."""
    count = min(num_columns, most_points)
    return np.linspace(0, num_columns, count, endpoint=False).astype(np.int64)


def _highest(totals: npt.NDArray[np.int64], edges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return, for each range, the first column with the highest total."""
    bounds = [*edges.tolist(), len(totals)]
    pairs = pairwise(bounds)
    return np.array([lo + int(np.argmax(totals[lo:hi])) for lo, hi in pairs], dtype=np.int64)


def _phases_in_points(phases: tuple[Phase, ...], edges: npt.NDArray[np.int64]) -> tuple[Phase, ...]:
    """Convert events [start, end) to points; column ``e + 1`` shows the state after event e."""

    def point(event: int) -> int:
        return int(np.searchsorted(edges, event + 1, side="left"))

    found = (Phase(name=p.name, start=point(p.start), end=point(p.end)) for p in phases)
    return tuple(phase for phase in found if phase.end > phase.start)


def category_names() -> tuple[str, ...]:
    """Return `CATEGORIES` as they are shown to users."""
    return tuple("buffers + inputs" if name == "buffers" else name for name in CATEGORIES)
