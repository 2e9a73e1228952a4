"""Curves of the panel: the points that a client has not seen yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.panel.channel.thinning import kept_rows, moving_average

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.panel.channel.channel import Client

NAMES = ("train/loss", "val/loss", "train/accuracy", "val/accuracy")
MEMORY_NAMES = (
    "memory/allocated",
    "memory/reserved",
    "memory/fragmentation",
    "memory/allocated_peak",
    "memory/resident",
    "memory/resident_peak",
    "parallel/rank 0 memory_mib",
)
"""Names of memory curves; an experiment has some of them (`workbench.metrics.memory`, and where
ranks compute its steps `workbench.parallel.exchange.rank_reports`), and the others are omitted."""
MAX_POINTS = 5_000
"""Maximum number of points of a curve that is sent whole."""


def update(client: Client, experiment: Experiment) -> tuple[dict[str, Any], list[bytes]] | None:
    """Return the message fields and buffers that update ``client``; None if it is up to date.

    Every name has three buffers: int32 steps, float32 values, and the float32 moving average, which
    is computed before the curve is thinned out and is empty if no point was left out.
    """
    first = not any(key[0] == experiment.id for key in client.points)
    names: list[str] = []
    starts: list[int] = []
    totals: list[int] = []
    weights: list[float] = []
    buffers: list[bytes] = []
    for name in (*NAMES, *MEMORY_NAMES):
        key = (experiment.id, name)
        have = client.points.get(key, 0)
        steps, values = experiment.scalars.since(name, have)
        if len(steps) == 0 and (not first or name in MEMORY_NAMES):
            continue
        client.points[key] = have + len(steps)
        average, weight = np.empty(0), 0.0
        if first and name in MEMORY_NAMES:  # only the newest are drawn, in columns of equal length
            steps, values = steps[-MAX_POINTS:], values[-MAX_POINTS:]
        elif first and len(steps) > MAX_POINTS:
            rows = kept_rows(values, MAX_POINTS)
            average, weight = moving_average(values)
            steps, values, average = steps[rows], values[rows], average[rows]
        names.append(name)
        starts.append(0 if first else have)
        totals.append(client.points[key])
        weights.append(weight)
        columns = steps.astype("<i4"), values.astype("<f4"), average.astype("<f4")
        buffers += [column.tobytes() for column in columns]
    if not names:
        return None
    fields = {"names": names, "from": starts, "total": totals, "weight": weights, "reset": first}
    return fields, buffers
