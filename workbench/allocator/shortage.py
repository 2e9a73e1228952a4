"""Why a request did not fit: which blocks stand in the way.

When an allocator runs out of memory, free bytes are often there, in pieces. In each segment, blocks
in use lie between free ones; a run of neighbours that is as long as the request would serve it,
were the blocks in it freed. The run that holds the fewest bytes in use is the cheapest to free.
Only neighbours in one segment of the request's own pool and stream are looked at: emptying another
segment, which then goes back to the driver, may take fewer bytes still.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workbench.allocator.blocks import Block, Pool
from workbench.allocator.rounding import SMALL_SIZE, round_size
from workbench.allocator.simulator import CachingAllocator


@dataclass(frozen=True)
class Obstacle:
    """A run of neighbours that would serve the request."""

    address: int
    """Where it begins."""
    size: int
    """Bytes of the whole run."""
    blocks: tuple[int, ...]
    """Addresses of the blocks in use, or waiting for a stream, that are in it."""
    in_use: int
    """Bytes of these."""


@dataclass(frozen=True)
class Shortage:
    """What was asked for, what there was, and what was in the way."""

    requested: int
    size: int
    """Bytes of the block that the request needs."""
    largest_free: int
    """Bytes of the largest free block that the request could have been given, were it enough."""
    free: int
    """Bytes of all free blocks of its pool and stream."""
    elsewhere: int
    """Free bytes of other pools and streams, which it cannot be given."""
    obstacles: tuple[Obstacle, ...]
    """The cheapest to free first; empty where no segment is as long as the request."""


def shortage(
    allocator: CachingAllocator, requested: int, stream: int = 0, private: int = 0, most: int = 5
) -> Shortage:
    """What kept ``allocator`` from serving a request.

    Args:
        allocator: as it is after the request failed.
        requested: bytes.
        stream: of the request.
        private: id of its private pool; 0 for the default one.
        most: number of obstacles to name, one for each segment at most.
    """
    size = round_size(requested, allocator.settings)
    pool = allocator.pools[private][size > SMALL_SIZE]
    region = pool.region(stream)
    free = [entry[0] for entry in region.free]
    everywhere = sum(entry[0] for one in allocator.regions() for entry in one.free)
    found = [
        cheapest
        for chain in _segments(allocator, pool, stream)
        if (cheapest := _cheapest(chain, size)) is not None
    ]
    found.sort(key=lambda obstacle: (obstacle.in_use, obstacle.size, obstacle.address))
    return Shortage(
        requested=requested,
        size=size,
        largest_free=max(free, default=0),
        free=sum(free),
        elsewhere=everywhere - sum(free),
        obstacles=tuple(found[:most]),
    )


def _segments(allocator: CachingAllocator, pool: Pool, stream: int) -> Iterator[list[Block]]:
    """The blocks of each segment of a pool on a stream, in order; without what is not mapped."""
    region = pool.region(stream)
    known = [block for block in allocator.blocks.values() if block.region is region]
    known += [entry[2] for entry in region.free]
    for first in known:
        if first.prev is None or not first.prev.is_mapped:
            chain: list[Block] = []
            block: Block | None = first
            while block is not None and block.is_mapped:
                chain.append(block)
                block = block.next
            yield chain


def _cheapest(chain: list[Block], size: int) -> Obstacle | None:
    """The shortest runs of at least ``size`` bytes, and of these the one with least in use."""
    best: Obstacle | None = None
    first = length = in_use = 0
    for last, block in enumerate(chain):
        length += block.size
        in_use += block.size * block.is_busy
        while length - chain[first].size >= size:
            length -= chain[first].size
            in_use -= chain[first].size * chain[first].is_busy
            first += 1
        if length >= size and (best is None or in_use < best.in_use):
            run = chain[first : last + 1]
            busy = tuple(one.address for one in run if one.is_busy)
            best = Obstacle(run[0].address, length, busy, in_use)
    return best
