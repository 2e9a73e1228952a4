"""The units that can be released to the driver: a segment, or a page of an expandable one.

A unit is released if no block is in it. When that is the case follows from the lifetimes of units
and blocks: sorted by unit and time, they are divided into spans between one block's allocation or
free and the next, and a span with no block in it is unused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.allocator.simulator.rounding import SMALL_SEGMENT
from workbench.memory.reading.segments import last_before
from workbench.records import POOLS, MemoryRecord

Ints = npt.NDArray[np.int64]
_LARGE = POOLS.index("large")


@dataclass(frozen=True, eq=False, kw_only=True)
class Units:
    """Units, and which blocks are in which; moments are columns: 0 is before the first event."""

    segment: Ints
    """Row of the segment that each unit is, or is a page of."""
    size: Ints
    start: Ints
    end: Ints
    """One past the last column at which it is there."""
    pair_unit: Ints
    pair_start: Ints
    pair_end: Ints
    """For each pair of a block and a unit that it extends into."""
    length: int
    """Number of columns."""

    def unused(self, segments: npt.NDArray[np.bool_]) -> Ints:
        """Return, for each column, the bytes of the units of ``segments`` that no block is in."""
        num = len(self.size)
        unit = np.concatenate([np.arange(num), self.pair_unit, self.pair_unit])
        time = np.concatenate([self.start, self.pair_start, self.pair_end])
        change = np.repeat((0, 1, -1), (num, len(self.pair_unit), len(self.pair_unit)))
        order = np.lexsort((-np.abs(change), time, unit))
        unit, time, change = unit[order], time[order], change[order]
        busy = np.cumsum(change)  # a unit's changes add up to 0 once all its blocks have ended
        until = np.append(time[1:], 0)
        last = np.append(unit[1:] != unit[:-1], True)
        until[last] = self.end[unit[last]]
        until = np.minimum(until, self.end[unit])
        free = (busy == 0) & (until > time) & segments[self.segment[unit]]
        delta = np.zeros(self.length + 1, dtype=np.int64)
        np.add.at(delta, time[free], self.size[unit[free]])
        np.subtract.at(delta, until[free], self.size[unit[free]])
        return np.cumsum(delta)[:-1]


def units_of(record: MemoryRecord, large_page: int) -> Units:
    """Return the units of a record.

    Args:
        record: a record with segments.
        large_page: bytes of a page of an expandable segment of the large pool.
    """
    length = len(record.event_time_us) + 1
    page = np.where(record.segment_pool == _LARGE, large_page, SMALL_SEGMENT).astype(np.int64)
    expandable = record.segment_expandable > 0
    page[~expandable] = record.segment_bytes[~expandable]
    counts = np.maximum(1, -(-record.segment_bytes // np.maximum(page, 1)))
    segment = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(segment)) - np.repeat(np.cumsum(counts) - counts, counts)
    address = record.segment_address[segment] + number * page[segment]
    start = record.segment_start[segment].astype(np.int64) + 1
    end = record.segment_end[segment].astype(np.int64) + 1
    end[end == 0] = length
    pair_unit, block = _pairs(record, page, _Places(address, start))
    pair_end = record.block_end[block].astype(np.int64) + 1
    pair_end[pair_end == 0] = length
    return Units(
        segment=segment,
        size=np.minimum(page[segment], record.segment_bytes[segment]),
        start=start,
        end=end,
        pair_unit=pair_unit,
        pair_start=record.block_start[block].astype(np.int64) + 1,
        pair_end=pair_end,
        length=length,
    )


class _Places:
    """Find the unit at an address at a time."""

    def __init__(self, address: Ints, start: Ints) -> None:
        self._order = np.lexsort((start, address))
        self._address = address[self._order]
        self._start = start[self._order]

    def at(self, address: Ints, time: Ints) -> Ints:
        """Return the last unit at or before each address, among those there by ``time``."""
        found = last_before(self._address, self._start, address, time)
        return self._order[np.maximum(found, 0)]


def _pairs(record: MemoryRecord, page: Ints, places: _Places) -> tuple[Ints, Ints]:
    """Return (unit, block) for each unit that a block extends into."""
    block = np.flatnonzero(record.block_segment >= 0)
    segment = record.block_segment[block].astype(np.int64)
    offset = record.block_address[block] - record.segment_address[segment]
    size = page[segment]
    first = offset // size
    counts = np.maximum(1, (offset + record.block_bytes[block] - 1) // size - first + 1)
    counts[record.segment_expandable[segment] == 0] = 1
    rows = np.repeat(np.arange(len(block)), counts)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    address = record.segment_address[segment[rows]] + (first[rows] + number) * size[rows]
    time = record.block_start[block[rows]].astype(np.int64) + 1
    return places.at(address, time), block[rows]
