"""The segments that a simulated allocator holds at a moment.

`workbench.allocator.replay.restored_state` does the reverse.
"""

from __future__ import annotations

from typing import Any

from workbench.allocator.replay.start_state import StartBlock, StartSegment
from workbench.allocator.simulator.blocks import Block
from workbench.allocator.simulator.simulator import CachingAllocator
from workbench.records import POOLS


def held_by(allocator: CachingAllocator) -> list[StartSegment]:
    """Return its segments in order of address; of an expandable one, the ranges with memory."""
    known = list(allocator.blocks.values())
    known += [entry[2] for region in allocator.regions() for entry in region.free]
    found = [_segment(first, allocator) for first in known if _begins(first)]
    return sorted(found, key=lambda segment: segment.address)


def segment_columns_of(segments: list[StartSegment]) -> dict[str, Any]:
    """Return the columns of segments that were there before the first event and stay."""
    before = [-1] * len(segments)
    return {
        "segment_start": before,
        "segment_end": before,
        "segment_address": [segment.address for segment in segments],
        "segment_bytes": [segment.size for segment in segments],
        "segment_stream": [segment.stream for segment in segments],
        "segment_pool": [POOLS.index("large" if one.is_large else "small") for one in segments],
        "segment_expandable": [int(segment.is_expandable) for segment in segments],
        "segment_private": [segment.private for segment in segments],
    }


def _begins(block: Block) -> bool:
    return block.prev is None or not block.prev.is_mapped


def _segment(first: Block, allocator: CachingAllocator) -> StartSegment:
    region, size = first.region, 0
    blocks: list[StartBlock] = []
    block: Block | None = first
    while block is not None and block.is_mapped:
        size += block.size
        if block.is_busy:
            blocks.append(StartBlock(block.address, block.requested, block.size))
        block = block.next
    return StartSegment(
        first.address,
        size,
        region.stream,
        not region.pool.is_small,
        region.pool.id,
        is_expandable=allocator.expandable is not None,
        blocks=blocks,
    )
