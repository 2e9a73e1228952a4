"""Segments over time: when the allocator took which memory from the driver, and gave it back.

A snapshot holds the segments at its end and a trace of how they came to be. Read backwards, the
trace takes away what was added and puts back what was removed, so the segments of every moment are
known, also of those before it began. An expandable segment grows and shrinks by pages: what an
``unmap`` cuts out of a larger range is a row of its own, and ranges that touch are one segment.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.allocator.snapshot import (
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Snapshot,
)

Ints = npt.NDArray[np.int64]
_SMALL_SEGMENT = 2 << 20
_SMALL_PAGES = 18 << 20
"""Ranges of an expandable segment below one page of the large pool (20 MiB) are small ones."""


class Range(NamedTuple):
    """Memory of the driver's for some time."""

    address: int
    num_bytes: int
    stream: int
    is_large: int
    is_expandable: int
    private: int
    end: int
    """The event that gave it back, -1 for one that is there at the end."""


def segment_columns(snapshot: Snapshot, event: Ints) -> dict[str, Any]:
    """The ``segment_*`` columns of a `MemoryRecord`; ``event`` numbers the trace's entries."""
    rows = sorted(_rows(snapshot, event), key=lambda row: (row[0], row[1].address))
    ranges = [found for _, found in rows]
    return {
        "segment_start": [start for start, _ in rows],
        "segment_end": [found.end for found in ranges],
        "segment_address": [found.address for found in ranges],
        "segment_bytes": [found.num_bytes for found in ranges],
        "segment_stream": [found.stream for found in ranges],
        "segment_pool": [found.is_large for found in ranges],
        "segment_expandable": [found.is_expandable for found in ranges],
        "segment_private": [found.private for found in ranges],
    }


def segment_rows(columns: dict[str, Any], address: Ints, start: Ints) -> Ints:
    """Row of the segment that each block was allocated in; -1 where none held its address then."""
    left, begin, end, num_bytes = (
        np.asarray(columns[f"segment_{name}"], dtype=np.int64)
        for name in ("address", "start", "end", "bytes")
    )
    found = np.full(len(address), -1, dtype=np.int64)
    if not len(left):
        return found
    order = np.lexsort((begin, left))
    at = _last_before(left[order], begin[order], address, start)
    todo = np.flatnonzero(at >= 0)
    # Segments of other times may lie between a block and its own: go down past them.
    while len(todo):
        row = order[at[todo]]
        inside = (address[todo] < left[row] + num_bytes[row]) & (begin[row] <= start[todo])
        inside &= (end[row] < 0) | (end[row] > start[todo])
        found[todo[inside]] = row[inside]
        todo = todo[~inside]
        at[todo] -= 1
        todo = todo[at[todo] >= 0]
    return found


def _last_before(left: Ints, begin: Ints, address: Ints, start: Ints) -> Ints:
    """Index of the last (left, begin) that is not after each (address, start)."""
    num = len(left)
    is_block = np.repeat((0, 1), (num, len(address)))
    order = np.lexsort((is_block, np.append(begin, start), np.append(left, address)))
    before = np.cumsum(is_block[order] == 0) - 1
    at = np.empty(len(order), dtype=np.int64)
    at[order] = before
    return at[num:]


def _rows(snapshot: Snapshot, event: Ints) -> Iterator[tuple[int, Range]]:
    """(start, range) of everything the allocator ever held, found by undoing the trace."""
    private = _private(snapshot)
    held = _Held()
    final = (
        snapshot.segment_address, snapshot.segment_bytes, snapshot.segment_stream,
        snapshot.segment_is_large, snapshot.segment_is_expandable, snapshot.segment_pool,
    )  # fmt: skip
    for address, num_bytes, stream, large, expandable, pool in _listed(final):
        held.put(Range(address, num_bytes, stream, large, expandable, private[pool], -1))
    entries = np.flatnonzero(
        (snapshot.action >= SEGMENT_ALLOC) & (snapshot.action <= SEGMENT_UNMAP)
    )[::-1]
    trace = (
        snapshot.action[entries], snapshot.address[entries], snapshot.size[entries],
        snapshot.stream[entries], snapshot.trace_pool[entries], event[entries],
    )  # fmt: skip
    for action, address, num_bytes, stream, pool, number in _listed(trace):
        if action in (SEGMENT_ALLOC, SEGMENT_MAP):
            for piece in held.take(address, address + num_bytes):
                yield number, piece
        elif action in (SEGMENT_FREE, SEGMENT_UNMAP):
            expandable = int(action == SEGMENT_UNMAP)
            large = int(num_bytes > (_SMALL_PAGES if expandable else _SMALL_SEGMENT))
            held.put(Range(address, num_bytes, stream, large, expandable, private[pool], number))
    for piece in held.pieces():
        yield -1, piece


def _listed(columns: tuple[npt.NDArray[Any], ...]) -> Iterator[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _private(snapshot: Snapshot) -> list[int]:
    """Number of the private pool by row of ``pools``; the last, for row -1, is the default pool."""
    numbers: list[int] = []
    count = 0
    for pool in snapshot.pools:
        count += pool != (0, 0)
        numbers.append(count if pool != (0, 0) else 0)
    return [*numbers, 0]


class _Held:
    """Ranges at one moment, by address; they never overlap."""

    def __init__(self) -> None:
        self._addresses: list[int] = []
        self._ranges: dict[int, Range] = {}

    def put(self, found: Range) -> None:
        """Add a range; what overlaps (segments and trace are read in turn) yields to it."""
        for _ in self.take(found.address, found.address + found.num_bytes):
            pass
        insort(self._addresses, found.address)
        self._ranges[found.address] = found

    def take(self, low: int, high: int) -> Iterator[Range]:
        """Remove [low, high) and give what lay there; what reaches beyond stays."""
        first = bisect_left(self._addresses, low)
        if first and self._end(first - 1) > low:
            first -= 1
        touched = self._addresses[first : bisect_left(self._addresses, high)]
        del self._addresses[first : first + len(touched)]
        for found in [self._ranges.pop(address) for address in touched]:
            begin, end = found.address, found.address + found.num_bytes
            inside = max(begin, low), min(end, high)
            for left, right in ((begin, inside[0]), (inside[1], end)):
                if right > left:
                    self.put(found._replace(address=left, num_bytes=right - left))
            yield found._replace(address=inside[0], num_bytes=inside[1] - inside[0])

    def pieces(self) -> Iterator[Range]:
        """What is left."""
        return iter(self._ranges.values())

    def _end(self, index: int) -> int:
        found = self._ranges[self._addresses[index]]
        return found.address + found.num_bytes
