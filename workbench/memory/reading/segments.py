"""The segments of a record, and the segment that each block is in.

`workbench.allocator.replay.address_ranges` reports what the allocator held from when to when; here
its ranges become rows, with events in place of the trace's entries and a small number for each
private pool. In a record, adjacent ranges of an expandable segment are one segment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.allocator.replay.address_ranges import ranges_of
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import Snapshot

Ints = npt.NDArray[np.int64]


def segment_columns(snapshot: Snapshot, event: Ints) -> dict[str, Any]:
    """Return the ``segment_*`` columns of a `MemoryRecord`; ``event`` maps entries to events."""
    private, events = _private(snapshot), np.append(event, -1)  # entry -1 is none, and the last
    ranges = ranges_of(snapshot, AllocatorSettings.of_snapshot_or_default(snapshot.settings)).ranges
    ranges.sort(key=lambda found: (found.start, found.address))
    return {
        "segment_start": events[[found.start for found in ranges]],
        "segment_end": events[[found.end for found in ranges]],
        "segment_address": [found.address for found in ranges],
        "segment_bytes": [found.num_bytes for found in ranges],
        "segment_stream": [found.stream for found in ranges],
        "segment_pool": [found.is_large for found in ranges],
        "segment_expandable": [found.is_expandable for found in ranges],
        "segment_private": [private[found.pool] for found in ranges],
    }


def segment_rows(columns: dict[str, Any], address: Ints, start: Ints) -> Ints:
    """Return the row of the segment that each block was allocated in; -1 if there was none then."""
    left, begin, end, num_bytes = (
        np.asarray(columns[f"segment_{name}"], dtype=np.int64)
        for name in ("address", "start", "end", "bytes")
    )
    found = np.full(len(address), -1, dtype=np.int64)
    if not len(left):
        return found
    order = np.lexsort((begin, left))
    at = last_before(left[order], begin[order], address, start)
    todo = np.flatnonzero(at >= 0)
    # Segments of other times may be between a block and its own: go down past them.
    while len(todo):
        row = order[at[todo]]
        inside = (address[todo] < left[row] + num_bytes[row]) & (begin[row] <= start[todo])
        inside &= (end[row] < 0) | (end[row] > start[todo])
        found[todo[inside]] = row[inside]
        todo = todo[~inside]
        at[todo] -= 1
        todo = todo[at[todo] >= 0]
    return found


def last_before(left: Ints, begin: Ints, address: Ints, start: Ints) -> Ints:
    """Return the index of the last (left, begin) not after each (address, start); -1 if none is.

    The pairs of ``left`` and ``begin`` are in ascending order, the pairs that are looked up in any
    order.
    """
    num = len(left)
    is_block = np.repeat((0, 1), (num, len(address)))
    order = np.lexsort((is_block, np.append(begin, start), np.append(left, address)))
    before = np.cumsum(is_block[order] == 0) - 1
    at = np.empty(len(order), dtype=np.int64)
    at[order] = before
    return at[num:]


def _private(snapshot: Snapshot) -> list[int]:
    """Number of the private pool by row of ``pools``; the last, for row -1, is the default pool."""
    numbers: list[int] = []
    count = 0
    for pool in snapshot.pools:
        count += pool != (0, 0)
        numbers.append(count if pool != (0, 0) else 0)
    return [*numbers, 0]
