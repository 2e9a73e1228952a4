"""Requests that an allocator refused, with the blocks in their way.

A trace says how much was requested and how much the driver still had. What the allocator held at
that moment, in which pieces and between which blocks, is known only from a replay: it has the same
blocks at the same addresses, and can be queried for the cheapest of them to free
(`workbench.allocator.shortage`). Here those addresses become rows of the record's blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.allocator.shortage import Shortage
from workbench.allocator.snapshot.snapshot import OOM, Snapshot
from workbench.memory.reading.lifetimes import Lifetimes
from workbench.memory.reading.segments import last_before

Ints = npt.NDArray[np.int64]


def refusal_columns(
    snapshot: Snapshot, lifetimes: Lifetimes, shortages: Mapping[int, Shortage]
) -> dict[str, Any]:
    """Return the ``oom_*`` and ``obstacle_*`` columns of a `MemoryRecord`.

    Args:
        snapshot: one device of a snapshot.
        lifetimes: its blocks, as rows of the record.
        shortages: entry of the trace -> what a replay found there; no entry for those not replayed.
    """
    event = np.cumsum(lifetimes.kept) - 1
    refused = np.flatnonzero(snapshot.action == OOM)
    found = [shortages.get(entry) for entry in refused.tolist()]
    wanted = [
        (row, address)
        for row, one in enumerate(found)
        if one is not None and one.obstacles
        for address in one.obstacles[0].blocks
    ]
    oom, address = np.array(wanted, dtype=np.int64).reshape(-1, 2).T
    block = _rows_at(lifetimes, address, event[refused[oom]])
    return {
        "oom_event": event[refused],
        "oom_bytes": np.maximum(snapshot.size[refused], 0),
        "oom_free": np.maximum(snapshot.address[refused], -1),
        "oom_largest": [-1 if one is None else one.largest_free for one in found],
        "obstacle_oom": oom[block >= 0],
        "obstacle_block": block[block >= 0],
    }


def _rows_at(lifetimes: Lifetimes, address: Ints, event: Ints) -> Ints:
    """Return the row of the block at each address at each event; -1 if there is none."""
    if not len(lifetimes.start):
        return np.full(len(address), -1, dtype=np.int64)
    order = np.lexsort((lifetimes.start, lifetimes.address))
    at = last_before(lifetimes.address[order], lifetimes.start[order], address, event)
    row = order[np.maximum(at, 0)]
    there = (at >= 0) & (lifetimes.address[row] == address)
    there &= (lifetimes.end[row] < 0) | (lifetimes.end[row] > event)
    return np.where(there, row, -1)
