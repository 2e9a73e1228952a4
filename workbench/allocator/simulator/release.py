"""What the allocator releases to the driver, and in which order.

A segment is released whole, so only one without a block in use; of an expandable segment, whole
pages are. Three things make the allocator release memory: a request that the driver cannot serve
(``release_available_cached_blocks``, then ``release_cached_blocks``), ``torch.cuda.empty_cache``,
which is only the latter, and a threshold beyond which blocks that were unused for long are garbage
(``garbage_collect_cached_blocks``). All are in ``c10/cuda/CUDACachingAllocator.cpp``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.allocator.simulator.blocks import Block, Pool, Region
from workbench.allocator.snapshot.snapshot import SEGMENT_FREE, SEGMENT_UNMAP

if TYPE_CHECKING:
    from workbench.allocator.simulator.simulator import CachingAllocator


def unused(allocator: CachingAllocator) -> list[tuple[int, int, int]]:
    """Return (action, address, bytes) of what `release_unused` would release now, in its order."""
    found: list[tuple[int, int, int]] = []
    for pool in _pools(allocator):
        for block in pool.free_blocks():
            if allocator.expandable is not None:
                start, end = allocator.expandable.whole_pages(block)
                if start < end:
                    found.append((SEGMENT_UNMAP, start, end - start))
            elif not block.is_split:
                found.append((SEGMENT_FREE, block.address, block.size))
    return found


def inactive_split(allocator: CachingAllocator) -> int:
    """Return bytes of free blocks in segments that others use: torch's ``inactive_split_bytes``.

    As in torch, blocks of expandable segments are left out. May be called from any thread.
    """
    if allocator.expandable is not None:
        return 0
    pools = [pool for pair in list(allocator.pools.values()) for pool in pair]
    regions = [region for pool in pools for region in list(pool.regions.values())]
    free = [block for region in regions for _, _, block in list(region.free)]
    return sum(block.size for block in free if block.is_split)


def release_unused(allocator: CachingAllocator) -> None:
    """Release every segment that is one free block, and every page without a block in use."""
    for pool in _pools(allocator):
        release_pool(allocator, pool)


def release_pool(allocator: CachingAllocator, pool: Pool) -> None:
    """Do the same for one pool."""
    blocks = pool.free_blocks()
    if allocator.expandable is not None:
        for block in blocks:
            allocator.expandable.release(block)
        return
    for block in blocks:
        if not block.is_split:
            _release(allocator, block)


def release_oversize(allocator: CachingAllocator, region: Region, size: int) -> bool:
    """Release blocks that are too large to be split, as many as a request of ``size`` needs.

    Only if ``max_split_size`` is set; returns False if they are too few.
    """
    if allocator.settings.max_split_size is None or allocator.expandable is not None:
        return False
    wanted = max(size, allocator.max_split)
    free = region.free
    at = bisect_left(free, (wanted,))
    if at < len(free):
        _release(allocator, free[at][2])
        return True
    released = 0
    while released < wanted and free and free[-1][0] >= allocator.max_split:
        released += free[-1][0]
        _release(allocator, free[-1][2])
    return released >= wanted


def collect_garbage(allocator: CachingAllocator) -> None:
    """Release large segments of the default pool that were unused for longer than the others.

    An age is counted in searches of that pool.
    """
    threshold = int(allocator.settings.garbage_collection_threshold * (allocator.allowed or 0))
    pool = allocator.pools[0][1]
    target = allocator.reserved - threshold
    candidates = [block for block in pool.free_blocks() if not block.is_split]
    total = sum(pool.num_searches - block.free_since for block in candidates)
    reclaimed = 0
    while reclaimed < target and candidates and allocator.expandable is None:
        mean = total / len(candidates)
        kept: list[Block] = []
        for block in candidates:
            age = pool.num_searches - block.free_since
            if age < mean:
                kept.append(block)
                continue
            reclaimed += block.size
            total -= age
            _release(allocator, block)
        candidates = kept


def _pools(allocator: CachingAllocator) -> Iterator[Pool]:
    """Yield the pools that release memory, in order: large before small, then private ones."""
    small, large = allocator.pools[0]
    yield large
    yield small
    for private, pools in allocator.pools.items():
        if private and pools[0].is_releasable:
            yield from pools


def _release(allocator: CachingAllocator, block: Block) -> None:
    block.region.take(block)
    allocator.device.free(block.address, block.size)
    allocator.reserved -= block.size
