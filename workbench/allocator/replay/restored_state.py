"""An allocator restored to a state in the middle of a program."""

from __future__ import annotations

from workbench.allocator.replay.start_state import StartSegment, StartState
from workbench.allocator.simulator.blocks import Block, Region
from workbench.allocator.simulator.simulator import CachingAllocator


def restore(allocator: CachingAllocator, state: StartState) -> None:
    """Put the segments and blocks of ``state`` into an empty allocator."""
    ends: dict[Region, Block] = {}
    for segment in state.segments:
        region = _region_of(allocator, segment)
        first, last = _put_segment(allocator, region, segment)
        if allocator.expandable is not None and segment.is_expandable:
            key = segment.stream, segment.is_large, segment.private
            if region in ends:
                allocator.expandable.join(ends[region], first)
            elif state.lowest.get(key, first.address) < first.address:
                allocator.expandable.begin(first, state.lowest[key])
            ends[region] = last
    if allocator.expandable is not None:
        for last in ends.values():
            allocator.expandable.extend(last)


def _region_of(allocator: CachingAllocator, segment: StartSegment) -> Region:
    if segment.private not in allocator.pools:
        allocator.add_pool(segment.private)
    return allocator.pools[segment.private][segment.is_large].region(segment.stream)


def _put_segment(
    allocator: CachingAllocator, region: Region, segment: StartSegment
) -> tuple[Block, Block]:
    """Put a segment into the allocator; return its first and its last block."""
    allocator.reserved += segment.size
    allocator.device.in_use += segment.size
    first: Block | None = None
    last: Block | None = None
    at = segment.address
    for start in segment.blocks:
        if start.address > at:
            last = _put_free(region, segment, at, start.address - at, last)
            first = first or last
        block = Block(region, start.address, start.size, segment.address)
        block.requested, block.is_busy = start.requested, True
        allocator.blocks[block.address] = block
        last = _link(last, block)
        first = first or last
        at = block.address + block.size
    end = segment.address + segment.size
    if at < end or last is None:
        last = _put_free(region, segment, at, end - at, last)
    return first or last, last


def _put_free(
    region: Region, segment: StartSegment, address: int, size: int, last: Block | None
) -> Block:
    block = Block(region, address, size, segment.address)
    region.put(block)
    return _link(last, block)


def _link(last: Block | None, block: Block) -> Block:
    block.prev = last
    if last is not None:
        last.next = block
    return block
