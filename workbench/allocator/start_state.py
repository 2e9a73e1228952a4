"""What an allocator held when a trace began.

A snapshot says what was there at its end; its trace, read backwards, takes away what came since and
puts back what went. What a trace does not say is how large a block *was* that it only sees freed:
it gives the bytes that were asked for. Rounding gives the rest, except for a large block, which may
have kept up to 1 MiB that was too little to split off. There the bytes to the next block tell: with
default settings the large pool has no free block of 1 MiB or less, so what is shorter belongs to
the block; what is longer begins where the first later allocation inside it begins.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from workbench.allocator.rounding import SMALL_SIZE, round_size
from workbench.allocator.settings import AllocatorSettings
from workbench.allocator.snapshot import (
    ALLOC,
    FREE,
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Snapshot,
)

_OF_BLOCKS = (ALLOC, FREE_COMPLETED)


@dataclass
class StartBlock:
    """A block in use, or waiting for a stream."""

    address: int
    requested: int
    size: int = 0
    """Bytes; 0 until they are known."""


@dataclass
class StartSegment:
    """A segment, or a stretch of mapped pages."""

    address: int
    size: int
    stream: int
    is_large: bool
    private: int
    is_expandable: bool = False
    blocks: list[StartBlock] = field(default_factory=list[StartBlock])
    """In order of address."""


@dataclass
class StartState:
    """Segments with their blocks."""

    segments: list[StartSegment]
    """In order of address."""
    lowest: dict[tuple[int, bool, int], int] = field(
        default_factory=dict[tuple[int, bool, int], int]
    )
    """(stream, is large, private pool) -> lowest address of pages that the trace maps there."""
    num_inferred: int = 0
    """Blocks whose size no column says."""
    num_guessed: int = 0
    """Those of them that nothing in the trace confirms."""
    num_lost: int = 0
    """Events about blocks or segments that the rest of the snapshot contradicts."""


def start_state(snapshot: Snapshot, settings: AllocatorSettings) -> StartState:
    """The state before the first event of ``snapshot``."""
    undo = _Undo(snapshot, settings.large_segment_size)
    state = StartState(undo.segments(), undo.lowest(), num_lost=undo.num_lost)
    open_ends = _infer_sizes(state, undo.blocks, settings)
    _look_ahead(open_ends, snapshot)
    for end in open_ends:
        end.block.size = end.found - end.block.address if end.found else end.rounded
        state.num_guessed += not end.found
    return state


class _Undo:
    """A trace, taken back event by event."""

    def __init__(self, snapshot: Snapshot, large_page: int) -> None:
        self.num_lost = 0
        self._large_page = large_page
        self._found: dict[int, StartSegment] = {}
        self.blocks: dict[int, StartBlock] = {}
        pools = {-1: 0} | {row: private_of(pool) for row, pool in enumerate(snapshot.pools)}
        self._pools = pools
        columns = (
            snapshot.segment_address,
            snapshot.segment_bytes,
            snapshot.segment_stream,
            snapshot.segment_is_large,
            snapshot.segment_pool,
            snapshot.segment_is_expandable,
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for address, size, stream, large, pool, expandable in rows:
            self._found[address] = StartSegment(
                address, size, stream, bool(large), pools[pool], bool(expandable)
            )
        mapped = snapshot.action == SEGMENT_MAP
        about = snapshot.address, snapshot.size, snapshot.stream, snapshot.trace_pool
        self._maps = list(zip(*(column[mapped].tolist() for column in about), strict=True))
        self._small_pages = set(
            snapshot.address[mapped & (snapshot.size == 2 * SMALL_SIZE)].tolist()
        )
        self._take_blocks(snapshot)
        self._take_back(snapshot)

    def segments(self) -> list[StartSegment]:
        """Those that are left, by address, without their blocks."""
        return [self._found[address] for address in sorted(self._found)]

    def lowest(self) -> dict[tuple[int, bool, int], int]:
        """The lowest address that the trace maps pages at, by pool and stream."""
        found: dict[tuple[int, bool, int], int] = {}
        for address, size, stream, pool in self._maps:
            key = stream, size > 2 * SMALL_SIZE, self._pools[pool]
            found[key] = min(address, found.get(key, address))
        return found

    def _take_blocks(self, snapshot: Snapshot) -> None:
        columns = (
            snapshot.block_address,
            snapshot.block_bytes,
            snapshot.block_requested,
            snapshot.block_state,
        )
        for address, size, requested, state in zip(*(c.tolist() for c in columns), strict=True):
            if state != FREE:
                self.blocks[address] = StartBlock(address, requested, size)

    def _take_back(self, snapshot: Snapshot) -> None:
        columns = (
            snapshot.action,
            snapshot.address,
            snapshot.size,
            snapshot.stream,
            snapshot.trace_pool,
        )
        rows = zip(*(column[::-1].tolist() for column in columns), strict=True)
        for action, address, size, stream, pool in rows:
            if action == ALLOC:
                self.num_lost += self.blocks.pop(address, None) is None
            elif action == FREE_COMPLETED:
                self.num_lost += address in self.blocks
                self.blocks[address] = StartBlock(address, size)
            elif action == SEGMENT_ALLOC:
                self.num_lost += self._found.pop(address, None) is None
            elif action == SEGMENT_FREE:
                is_large = size > 2 * SMALL_SIZE
                self._found[address] = StartSegment(
                    address, size, stream, is_large, self._pools[pool]
                )
            elif action == SEGMENT_MAP:
                self._unmap(address, size)
            elif action == SEGMENT_UNMAP:
                self._map(address, size, stream, self._pools[pool])

    def _unmap(self, address: int, size: int) -> None:
        end = address + size
        for segment in [s for s in self._found.values() if s.is_expandable]:
            last = segment.address + segment.size
            if segment.address <= address and end <= last:
                del self._found[segment.address]
                for start, stop in ((segment.address, address), (end, last)):
                    if start < stop:
                        self._found[start] = _part(segment, start, stop - start)
                return
        self.num_lost += 1

    def _map(self, address: int, size: int, stream: int, private: int) -> None:
        """Pages that were there; joined to what touches them."""
        small = range(address, address + size, 2 * SMALL_SIZE)
        is_large = size % self._large_page == 0 and self._small_pages.isdisjoint(small)
        place = stream, private, is_large
        for segment in [s for s in self._found.values() if s.is_expandable]:
            if (segment.stream, segment.private, segment.is_large) != place:
                continue
            if segment.address + segment.size == address or segment.address == address + size:
                del self._found[segment.address]
                address, size = min(address, segment.address), size + segment.size
        self._found[address] = StartSegment(
            address, size, stream, is_large, private, is_expandable=True
        )


@dataclass
class _OpenEnd:
    """A block that ends somewhere in a longer stretch."""

    block: StartBlock
    rounded: int
    until: int
    """Address of the next block, or of the end of the segment."""
    found: int = 0
    """Address at which it ends, once something tells."""


def _infer_sizes(
    state: StartState, blocks: dict[int, StartBlock], settings: AllocatorSettings
) -> list[_OpenEnd]:
    """Put the blocks into their segments, with their sizes where these are certain."""
    starts = [segment.address for segment in state.segments]
    for address in sorted(blocks):
        row = bisect_right(starts, address) - 1
        segment = state.segments[row] if row >= 0 else None
        if segment is None or address >= segment.address + segment.size:
            state.num_lost += 1
            continue
        segment.blocks.append(blocks[address])
    open_ends: list[_OpenEnd] = []
    for segment in state.segments:
        is_exact = not segment.is_large or segment.is_expandable
        ends = [*(block.address for block in segment.blocks), segment.address + segment.size][1:]
        for block, until in zip(segment.blocks, ends, strict=False):  # a segment may have no block
            if block.size:
                continue
            state.num_inferred += 1
            rounded = round_size(block.requested, settings)
            gap = until - block.address - rounded
            if is_exact or gap == 0:
                block.size = rounded
            elif 0 < gap <= SMALL_SIZE:
                block.size = rounded + gap
            else:
                open_ends.append(_OpenEnd(block, rounded, until))
    return open_ends


def _look_ahead(open_ends: list[_OpenEnd], snapshot: Snapshot) -> None:
    """Find the first allocation behind each block, as long as the block is there."""
    if not open_ends:
        return
    starts = [end.block.address for end in open_ends]
    left = set(range(len(open_ends)))
    columns = snapshot.action, snapshot.address
    for action, address in zip(*(column.tolist() for column in columns), strict=True):
        if action not in _OF_BLOCKS:
            continue
        row = bisect_right(starts, address) - 1
        if row not in left:
            continue
        end = open_ends[row]
        if action == FREE_COMPLETED:
            if address == end.block.address:
                left.discard(row)
            continue
        first = end.block.address + end.rounded
        if first <= address < end.until:
            if address - first <= SMALL_SIZE:
                end.found = address
            left.discard(row)
        if not left:
            return


def _part(segment: StartSegment, address: int, size: int) -> StartSegment:
    return StartSegment(
        address, size, segment.stream, segment.is_large, segment.private, is_expandable=True
    )


def private_of(pool: tuple[int, int]) -> int:
    """One number for the two of a pool's id; 0 for the default pool."""
    return pool[0] << 32 | pool[1]
