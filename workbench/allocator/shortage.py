"""Why a request did not fit: which blocks are in the way.

When an allocator runs out of memory, there are often free bytes, but in pieces. There are two ways
in which freeing blocks makes room for the request:

- In a segment of the request's own pool and stream, blocks in use are between free ones. A run of
  neighbours as long as the request can serve it, if the blocks in it are freed.
- Any segment without a block in use is released to the driver. If enough of them are emptied, the
  driver can serve a new one (`workbench.allocator.simulator.segment_emptying`).

The cheapest is the one with the fewest bytes in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workbench.allocator.simulator.blocks import Block, Region
from workbench.allocator.simulator.rounding import SMALL_SIZE, round_size, segment_size
from workbench.allocator.simulator.segment_emptying import cheapest_to_empty
from workbench.allocator.simulator.simulator import CachingAllocator


@dataclass(frozen=True)
class Obstacle:
    """Blocks whose freeing would serve the request: a run of neighbours, or whole segments."""

    address: int
    """Address of its start, or of the first of the segments."""
    size: int
    """Bytes of the whole run, or of the segments."""
    blocks: tuple[int, ...]
    """Addresses of the blocks in it that are in use, or waiting for a stream."""
    in_use: int
    """Bytes of these blocks."""
    segments: tuple[int, ...] = ()
    """Addresses of the segments that are released to the driver if these are emptied; for an
    expandable segment, of a range of its pages. Empty for a run."""


@dataclass(frozen=True)
class Shortage:
    """What was requested, what was available, and what was in the way."""

    requested: int
    size: int
    """Bytes of the block that the request needs."""
    largest_free: int
    """Bytes of the largest free block that could be given to the request, if it were enough."""
    free: int
    """Bytes of all free blocks of its pool and stream."""
    elsewhere: int
    """Free bytes of other pools and streams, which cannot be given to it."""
    obstacles: tuple[Obstacle, ...]
    """The cheapest to free first; empty if everything that can be freed is not enough."""


def shortage(
    allocator: CachingAllocator,
    requested: int,
    stream: int = 0,
    private: int = 0,
    *,
    most: int = 5,
    room: int | None = None,
) -> Shortage:
    """Return what prevented ``allocator`` from serving a request.

    Args:
        allocator: the allocator in its state after the request failed.
        requested: bytes.
        stream: the stream of the request.
        private: id of its private pool; 0 for the default one.
        most: the largest number of obstacles to return, with at most one run per segment.
        room: bytes that the driver still has; by default what the allocator's device and its own
            limit leave, or none if neither has a limit.
    """
    size = round_size(requested, allocator.settings)
    region = allocator.pools[private][size > SMALL_SIZE].region(stream)
    free = [entry[0] for entry in region.free]
    everywhere = sum(entry[0] for one in allocator.regions() for entry in one.free)
    chains = list(_segments(allocator))
    mine = [chain for chain in chains if chain[0].region is region]
    found = [one for chain in mine if (one := _cheapest(allocator, chain, size)) is not None]
    emptied = _emptied(chains, _missing(allocator, region, size, room))
    found += [emptied] if emptied is not None else []
    found.sort(key=lambda one: (one.in_use, len(one.segments), one.size, one.address))
    return Shortage(
        requested=requested,
        size=size,
        largest_free=max((one for one in free if allocator.takes(size, one)), default=0),
        free=sum(free),
        elsewhere=everywhere - sum(free),
        obstacles=tuple(found[:most]),
    )


def _segments(allocator: CachingAllocator) -> Iterator[list[Block]]:
    """Return the blocks of each segment, in order; without what is not mapped."""
    known = list(allocator.blocks.values())
    known += [entry[2] for region in allocator.regions() for entry in region.free]
    for first in known:
        if first.prev is None or not first.prev.is_mapped:
            chain: list[Block] = []
            block: Block | None = first
            while block is not None and block.is_mapped:
                chain.append(block)
                block = block.next
            yield chain


def _cheapest(allocator: CachingAllocator, chain: list[Block], size: int) -> Obstacle | None:
    """Find the shortest runs of at least ``size`` bytes; return the one with least in use."""
    best: Obstacle | None = None
    first = length = in_use = 0
    for last, block in enumerate(chain):
        length += block.size
        in_use += block.size * block.is_busy
        while length - chain[first].size >= size:
            length -= chain[first].size
            in_use -= chain[first].size * chain[first].is_busy
            first += 1
        if length < size or (best is not None and in_use >= best.in_use):
            continue
        if allocator.takes(size, length + _free_around(chain, first, last)):
            run = chain[first : last + 1]
            busy = tuple(one.address for one in run if one.is_busy)
            best = Obstacle(run[0].address, length, busy, in_use)
    return best


def _free_around(chain: list[Block], first: int, last: int) -> int:
    """Return the bytes of the free blocks that a run would merge with."""
    around = chain[max(first - 1, 0) : first] + chain[last + 1 : last + 2]
    return sum(block.size for block in around if not block.is_busy)


def _missing(allocator: CachingAllocator, region: Region, size: int, room: int | None) -> int:
    """Return bytes that must be released before the driver can serve a segment, or its pages.

    Pages are counted as if the request began on one; if it begins in a free remainder before them,
    that is at most one page too many.
    """
    wanted = segment_size(size, allocator.settings)
    if allocator.expandable is not None:
        page = allocator.expandable.page_of(region)
        wanted = max(wanted, -(-size // page) * page)
    if room is None:
        capacity, allowed = allocator.device.capacity, allocator.allowed
        left = [capacity - allocator.device.in_use] if capacity is not None else []
        left += [allowed - allocator.reserved] if allowed is not None else []
        room = min(left, default=0)
    return wanted - room if room < wanted else wanted


def _emptied(chains: list[list[Block]], missing: int) -> Obstacle | None:
    """Return the cheapest segments that release ``missing`` bytes; None if all together do not."""
    chains = [chain for chain in chains if chain[0].region.pool.is_releasable]
    sizes = [sum(block.size for block in chain) for chain in chains]
    in_use = [sum(block.size for block in chain if block.is_busy) for chain in chains]
    chosen = cheapest_to_empty(list(zip(sizes, in_use, strict=True)), missing)
    if chosen is None:
        return None
    starts = sorted(chains[row][0].address for row in chosen)
    busy = [block.address for row in chosen for block in chains[row] if block.is_busy]
    return Obstacle(
        address=starts[0],
        size=sum(sizes[row] for row in chosen),
        blocks=tuple(sorted(busy)),
        in_use=sum(in_use[row] for row in chosen),
        segments=tuple(starts),
    )
