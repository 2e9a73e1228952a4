"""The panel's curves: what a client has not seen yet, as int32 steps and float32 values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.panel.channel import Client

NAMES = ("train/loss", "val/loss", "train/accuracy", "val/accuracy")
MEMORY_NAMES = (
    "memory/allocated",
    "memory/reserved",
    "memory/fragmentation",
    "memory/allocated_peak",
    "memory/resident",
    "memory/resident_peak",
)
"""Of these an experiment has some (`workbench.metrics.memory`); the others are not mentioned."""
MAX_POINTS = 5_000
"""A curve sent whole is strided down to so many points, the last one always kept."""


def update(client: Client, experiment: Experiment) -> tuple[dict[str, Any], list[bytes]] | None:
    """The message fields and buffers that bring ``client`` up to date; None when it is."""
    first = not any(key[0] == experiment.id for key in client.points)
    names: list[str] = []
    starts: list[int] = []
    totals: list[int] = []
    buffers: list[bytes] = []
    for name in (*NAMES, *MEMORY_NAMES):
        key = (experiment.id, name)
        have = client.points.get(key, 0)
        steps, values = experiment.scalars.since(name, have)
        if len(steps) == 0 and (not first or name in MEMORY_NAMES):
            continue
        client.points[key] = have + len(steps)
        if first:
            steps, values = _strided(steps, values)
        names.append(name)
        starts.append(0 if first else have)
        totals.append(client.points[key])
        buffers += [steps.astype("<i4").tobytes(), values.astype("<f4").tobytes()]
    if not names:
        return None
    return {"names": names, "from": starts, "total": totals, "reset": first}, buffers


def _strided(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(steps) <= MAX_POINTS:
        return steps, values
    keep = np.unique(np.linspace(0, len(steps) - 1, MAX_POINTS).astype(np.int64))
    return steps[keep], values[keep]
