"""The state of an allocator when a trace began.

A snapshot says what was there at its end; reading its trace backwards removes what was added since
and restores what was removed. If a trace only contains the free of a block, it does not say how
large the block *was*: it contains the requested bytes. Rounding determines the rest, except for a
large block, which may have kept up to 1 MiB that was too little to split off. In that case the
bytes to the next block determine it: with default settings the large pool has no free block of 1
MiB or less, so a shorter range belongs to the block; in a longer one the block ends where the first
later allocation inside it begins. A block of ``max_split_size`` or more is never split, and so has
a segment of its own, up to the segment's end.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from workbench.allocator.replay.address_ranges import Range, ranges_of
from workbench.allocator.simulator.rounding import SMALL_SEGMENT, SMALL_SIZE, round_size
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import ALLOC, FREE, FREE_COMPLETED, SEGMENT_MAP, Snapshot

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
    """A segment, or a range of mapped pages."""

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
    """(stream, is large, private pool) -> lowest address of pages that the trace maps for it."""
    num_inferred: int = 0
    """Blocks whose size is in no column."""
    num_guessed: int = 0
    """Inferred blocks whose size nothing in the trace confirms."""
    num_lost: int = 0
    """Events about blocks or segments that the rest of the snapshot contradicts."""


def start_state(snapshot: Snapshot, settings: AllocatorSettings) -> StartState:
    """Return the state before the first event of ``snapshot``."""
    held = ranges_of(snapshot, settings)
    blocks, num_lost = _blocks_before(snapshot)
    segments = _segments_before(held.ranges, snapshot.pools)
    state = StartState(segments, _lowest_pages(snapshot), num_lost=held.num_lost + num_lost)
    open_ends = _infer_sizes(state, blocks, settings)
    _look_ahead(open_ends, snapshot)
    for end in open_ends:
        end.block.size = end.found - end.block.address if end.found else end.rounded
        state.num_guessed += not end.found
    return state


def _segments_before(ranges: list[Range], pools: tuple[tuple[int, int], ...]) -> list[StartSegment]:
    """Return the ranges that were there before, by address, with adjacent pages joined."""
    found: list[StartSegment] = []
    for one in sorted(ranges, key=lambda one: one.address):
        if one.start >= 0:
            continue
        private = private_of(pools[one.pool]) if one.pool >= 0 else 0
        segment = StartSegment(
            one.address, one.num_bytes, one.stream, bool(one.is_large), private,
            is_expandable=bool(one.is_expandable),
        )  # fmt: skip
        if found and _continues(found[-1], segment):
            found[-1].size += segment.size
        else:
            found.append(segment)
    return found


def _continues(last: StartSegment, segment: StartSegment) -> bool:
    """Return whether two ranges of pages are one."""
    touches = last.address + last.size == segment.address
    places = [(s.is_expandable, s.stream, s.private, s.is_large) for s in (last, segment)]
    return touches and last.is_expandable and places[0] == places[1]


def _lowest_pages(snapshot: Snapshot) -> dict[tuple[int, bool, int], int]:
    """Return the lowest address at which the trace maps pages, by stream, size and pool."""
    mapped = snapshot.action == SEGMENT_MAP
    about = snapshot.address, snapshot.size, snapshot.stream, snapshot.trace_pool
    found: dict[tuple[int, bool, int], int] = {}
    rows = zip(*(column[mapped].tolist() for column in about), strict=True)
    for address, size, stream, pool in rows:
        key = stream, size > SMALL_SEGMENT, private_of(snapshot.pools[pool]) if pool >= 0 else 0
        found[key] = min(address, found.get(key, address))
    return found


def _blocks_before(snapshot: Snapshot) -> tuple[list[StartBlock], int]:
    """Return the blocks from before the trace, by address, and the number of lost events.

    A block was there before if the trace's first entry about it is a free, or if the trace never
    mentions it. An allocation after which its address is not in use, and a free after which it
    still is, are lost.
    """
    there = snapshot.block_state != FREE
    known = snapshot.block_address[there]
    entries = np.flatnonzero(np.isin(snapshot.action, _OF_BLOCKS))
    order = entries[np.argsort(snapshot.address[entries], kind="stable")]
    address, frees = snapshot.address[order], snapshot.action[order] == FREE_COMPLETED
    is_new = address[1:] != address[:-1]
    first, last = np.append(True, is_new)[: len(order)], np.append(is_new, True)[: len(order)]
    in_use_after = np.append(frees[1:], False)[: len(order)]
    in_use_after[last] = np.isin(address[last], known)
    freed = order[first & frees]
    blocks = [
        StartBlock(at, requested)
        for at, requested in zip(
            snapshot.address[freed].tolist(), snapshot.size[freed].tolist(), strict=True
        )
    ]
    silent = np.flatnonzero(there)[~np.isin(known, address)]
    about = snapshot.block_address, snapshot.block_requested, snapshot.block_bytes
    rows = zip(*(column[silent].tolist() for column in about), strict=True)
    blocks += [StartBlock(*row) for row in rows]
    blocks.sort(key=lambda block: block.address)
    return blocks, int((in_use_after == frees).sum())


@dataclass
class _OpenEnd:
    """A block that ends somewhere in a longer range."""

    block: StartBlock
    rounded: int
    until: int
    """Address of the next block, or of the end of the segment."""
    found: int = 0
    """Address at which it ends, once it is determined."""


def _infer_sizes(
    state: StartState, blocks: list[StartBlock], settings: AllocatorSettings
) -> list[_OpenEnd]:
    """Put the blocks into their segments, with their sizes if these are certain."""
    starts = [segment.address for segment in state.segments]
    for block in blocks:
        row = bisect_right(starts, block.address) - 1
        segment = state.segments[row] if row >= 0 else None
        if segment is None or block.address >= segment.address + segment.size:
            state.num_lost += 1
            continue
        segment.blocks.append(block)
    open_ends: list[_OpenEnd] = []
    never_split = settings.max_split_size or 2**63
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
            elif rounded >= never_split:
                block.size = until - block.address
            elif 0 < gap <= SMALL_SIZE:
                block.size = rounded + gap
            else:
                open_ends.append(_OpenEnd(block, rounded, until))
    return open_ends


def _look_ahead(open_ends: list[_OpenEnd], snapshot: Snapshot) -> None:
    """Find the first allocation after each block, as long as the block is there."""
    if not open_ends:
        return
    starts = np.array([end.block.address for end in open_ends])
    untils = np.array([end.until for end in open_ends])
    entries = np.flatnonzero(np.isin(snapshot.action, _OF_BLOCKS))
    rows = np.searchsorted(starts, snapshot.address[entries], side="right") - 1
    near = (rows >= 0) & (snapshot.address[entries] < untils[rows])
    entries, rows = entries[near], rows[near]
    left = set(range(len(open_ends)))
    columns = snapshot.action[entries], snapshot.address[entries], rows
    for action, address, row in zip(*(column.tolist() for column in columns), strict=True):
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


def private_of(pool: tuple[int, int]) -> int:
    """Combine the two numbers of a pool's id into one; 0 for the default pool."""
    return pool[0] << 32 | pool[1]
