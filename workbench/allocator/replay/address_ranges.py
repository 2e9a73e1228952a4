"""Driver memory over time: which addresses an allocator held, from when to when.

A snapshot says what was held at its end, and its trace how that came about. Reading the trace
backwards removes what was added and restores what was removed, so what was held is known at every
moment, also before the trace began. An expandable segment grows and shrinks by pages: the part that
an ``unmap`` takes out of a longer range is a range of its own.

If a trace contains only the unmapping of a page, it does not say whether the page was the small
pool's or the large pool's. A block that was in it does, because no block of the small pool is
larger than 1 MiB and none of the large pool is smaller; so does a ``map`` there of one small page,
because the small pool never maps more at once. If there was neither, whole large pages are assumed
to be the large pool's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.allocator.simulator.rounding import SMALL_SEGMENT, SMALL_SIZE, round_sizes
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import (
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Snapshot,
)


class Range(NamedTuple):
    """A range of driver memory, for some time."""

    address: int
    num_bytes: int
    stream: int
    is_large: int
    is_expandable: int
    pool: int
    """Row of the snapshot's ``pools``; -1 if the file does not say."""
    end: int = -1
    """The entry of the trace that released it; -1 for what is there at the end."""
    start: int = -1
    """The entry of the trace that allocated it; -1 for what was there before."""


class Ranges(NamedTuple):
    """Everything that was ever held."""

    ranges: list[Range]
    num_lost: int
    """Entries of the trace about memory that the rest of the snapshot contradicts."""


def ranges_of(snapshot: Snapshot, settings: AllocatorSettings) -> Ranges:
    """Return every range of addresses that the allocator held, found by undoing the trace."""
    held, found = _Held(), list[Range]()
    final = (
        snapshot.segment_address, snapshot.segment_bytes, snapshot.segment_stream,
        snapshot.segment_is_large, snapshot.segment_is_expandable, snapshot.segment_pool,
    )  # fmt: skip
    for segment in _listed(final):
        held.put(Range(*segment))
    about = (snapshot.action >= SEGMENT_ALLOC) & (snapshot.action <= SEGMENT_UNMAP)
    num_lost = int((about & (snapshot.size == 0)).sum())  # no driver allocates or frees 0 bytes
    entries = np.flatnonzero(about & (snapshot.size > 0))[::-1]
    trace = (
        snapshot.action[entries], snapshot.address[entries], snapshot.size[entries],
        snapshot.stream[entries], snapshot.trace_pool[entries], entries,
    )  # fmt: skip
    pages = _Pages(snapshot, settings)
    for action, address, num_bytes, stream, pool, entry in _listed(trace):
        if action in (SEGMENT_ALLOC, SEGMENT_MAP):
            pieces = [one._replace(start=entry) for one in held.take(address, address + num_bytes)]
            num_lost += sum(piece.num_bytes for piece in pieces) != num_bytes
            found += pieces
            continue
        is_unmap = action == SEGMENT_UNMAP
        is_large = pages.are_large(address, num_bytes) if is_unmap else num_bytes > SMALL_SEGMENT
        gone = Range(address, num_bytes, stream, int(is_large), int(is_unmap), pool, entry)
        num_lost += held.put(gone)
    return Ranges([*found, *held.pieces()], num_lost)


def _listed(columns: tuple[npt.NDArray[Any], ...]) -> Iterator[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


class _Pages:
    """The pool that unmapped pages belonged to, as far as a trace determines it."""

    def __init__(self, snapshot: Snapshot, settings: AllocatorSettings) -> None:
        self._large_page = settings.large_segment_size
        self._small: list[int] = []
        self._blocks: list[int] = []
        self._is_large: list[bool] = []
        if not (snapshot.action == SEGMENT_UNMAP).any():
            return
        small = (snapshot.action == SEGMENT_MAP) & (snapshot.size == SMALL_SEGMENT)
        self._small = np.unique(snapshot.address[small]).tolist()
        of_blocks = np.flatnonzero(snapshot.action <= FREE_COMPLETED)
        blocks, rows = np.unique(snapshot.address[of_blocks], return_index=True)
        sizes = round_sizes(snapshot.size[of_blocks[rows]], settings)
        self._blocks, self._is_large = blocks.tolist(), (sizes > SMALL_SIZE).tolist()

    def are_large(self, address: int, num_bytes: int) -> bool:
        """Return whether pages in ``num_bytes`` from ``address`` on belong to the large pool."""
        end = address + num_bytes
        at = bisect_left(self._blocks, address)
        if at < len(self._blocks) and self._blocks[at] < end:
            return self._is_large[at]
        small = bisect_left(self._small, address)
        if small < len(self._small) and self._small[small] < end:
            return False
        return num_bytes % self._large_page == 0


class _Held:
    """The ranges held at one moment, by address; they never overlap."""

    def __init__(self) -> None:
        self._addresses: list[int] = []
        self._ranges: dict[int, Range] = {}

    def put(self, found: Range) -> bool:
        """Add a range, replacing what was there; return whether it overlapped something."""
        if not found.num_bytes:
            return False
        end = found.address + found.num_bytes
        at = bisect_left(self._addresses, found.address)
        overlaps = (at > 0 and self._end(at - 1) > found.address) or (
            at < len(self._addresses) and self._addresses[at] < end
        )
        if overlaps:
            self.take(found.address, end)
            at = bisect_left(self._addresses, found.address)
        self._addresses.insert(at, found.address)
        self._ranges[found.address] = found
        return overlaps

    def take(self, low: int, high: int) -> list[Range]:
        """Remove [low, high) and return what was there; what extends beyond stays."""
        first = bisect_left(self._addresses, low)
        exact = self._ranges.get(low)
        if exact is not None and low + exact.num_bytes == high:  # a segment comes and goes whole
            del self._addresses[first], self._ranges[low]
            return [exact]
        if first and self._end(first - 1) > low:
            first -= 1
        touched = self._addresses[first : bisect_left(self._addresses, high)]
        del self._addresses[first : first + len(touched)]
        return [self._cut(self._ranges.pop(address), low, high) for address in touched]

    def _cut(self, found: Range, low: int, high: int) -> Range:
        """Return the part of ``found`` in [low, high); put back the parts before and after it."""
        begin, end = found.address, found.address + found.num_bytes
        inside = max(begin, low), min(end, high)
        for left, right in ((begin, inside[0]), (inside[1], end)):
            if right > left:
                self.put(found._replace(address=left, num_bytes=right - left))
        return found._replace(address=inside[0], num_bytes=inside[1] - inside[0])

    def pieces(self) -> list[Range]:
        """Return what is left, by address."""
        return [self._ranges[address] for address in self._addresses]

    def _end(self, index: int) -> int:
        found = self._ranges[self._addresses[index]]
        return found.address + found.num_bytes
