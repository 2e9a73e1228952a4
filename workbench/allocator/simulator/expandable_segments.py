"""Expandable segments: ranges of addresses into which pages are mapped as they are needed.

The rules are those of ``ExpandableSegment``, ``find_expandable_block``, ``map_block`` and
``unmap_block`` in ``c10/cuda/CUDACachingAllocator.cpp``. One range, a little larger than the GPU's
memory, serves a pool on a stream. A part that has no memory behind it is a block too, busy as far
as the rest of the allocator is concerned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.allocator.simulator.blocks import Block, FreeList, Region
from workbench.allocator.simulator.rounding import SMALL_SEGMENT

if TYPE_CHECKING:
    from workbench.allocator.simulator.simulator import CachingAllocator


class Expandable:
    """The part of an allocator that handles pages."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self._allocator = allocator

    def page_of(self, region: Region) -> int:
        """Return the bytes of a page."""
        large = self._allocator.settings.large_segment_size
        return SMALL_SEGMENT if region.pool.is_small else large

    def best_fit(self, free: FreeList, at: int) -> int:
        """Start from the smallest block that fits, and move on to one that could grow less far."""
        while at + 1 < len(free) and _reach(free[at + 1][2]) < _reach(free[at][2]):
            at += 1
        return at

    def new_block(self, region: Region, size: int) -> Block | None:
        """Return a block of at least ``size`` bytes, all of it mapped; None: out of memory."""
        block = self._candidate(region, size)
        if not block.is_mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size and (following := block.next) is not None:
            if not self._map(following, min(size - block.size, following.size)):
                return None
            block = following  # it has absorbed the one before
        region.take(block)
        return block

    def whole_pages(self, block: Block) -> tuple[int, int]:
        """Return (address, end) of the whole pages inside ``block``; the end may come first."""
        page, base = self.page_of(block.region), block.segment
        start = base + -(-(block.address - base) // page) * page
        return start, base + (block.address + block.size - base) // page * page

    def release(self, block: Block) -> None:
        """Unmap the whole pages of a free block, and drop the range if nothing is left of it."""
        region = block.region
        start, end = self.whole_pages(block)
        if start >= end:
            return
        region.take(block)
        if start > block.address:
            region.put(_cut(block, start, keep_front=False))
        if block.address + block.size > end:
            region.put(_cut(block, end, keep_front=True))
        block.is_mapped, block.is_busy = False, True
        self._allocator.device.unmap(start, block.size)
        self._allocator.reserved -= block.size
        for neighbour in (block.prev, block.next):
            if neighbour is not None and not neighbour.is_mapped:
                region.take_unmapped(neighbour)
                _absorb(block, neighbour)
        if block.is_split:
            region.put_unmapped(block)

    def join(self, last: Block, first: Block) -> None:
        """Join two ranges of pages into one range, with addresses without memory between them.

        A snapshot does not say where a range begins: all ranges of pages of one pool and stream are
        assumed to be parts of one range, which they are unless a range was used up.
        """
        end = last.address + last.size
        _set_segment(first, last.segment)
        self._put_unmapped(last, end, first.address - end, first)

    def begin(self, first: Block, address: int) -> None:
        """Let the range of ``first`` begin at ``address``, without memory up to it."""
        _set_segment(first, address)
        block = Block(first.region, address, first.address - address, address)
        block.is_mapped, block.is_busy = False, True
        block.next, first.prev = first, block
        first.region.put_unmapped(block)

    def extend(self, last: Block) -> None:
        """Extend the range that ends with ``last`` to the length of a range."""
        end = last.address + last.size
        length = self._length(last.region)
        if last.segment + length > end:
            self._put_unmapped(last, end, last.segment + length - end, None)

    def forget_empty(self) -> None:
        """Drop ranges into which no page was mapped: no trace says where they are."""
        for region in self._allocator.regions():
            for _, block in [entry for entry in region.unmapped if not entry[1].is_split]:
                region.take_unmapped(block)

    def _put_unmapped(self, last: Block, address: int, size: int, after: Block | None) -> None:
        block = Block(last.region, address, size, last.segment)
        block.is_mapped, block.is_busy = False, True
        block.prev, block.next, last.next = last, after, block
        if after is not None:
            after.prev = block
        last.region.put_unmapped(block)

    def _length(self, region: Region) -> int:
        """Return the length of a range in bytes of addresses: a little more than the GPU has."""
        page, total = self.page_of(region), self._allocator.device.total
        return -(-(total + total // 8) // page) * page

    def _candidate(self, region: Region, size: int) -> Block:
        """Return the lowest free and unmapped addresses with enough room, else a new range."""
        for _, block in region.unmapped:
            before = block.prev
            first = before if before is not None and not before.is_busy else block
            if _room_from(first) >= size:
                return first
        length = self._length(region)
        address = self._allocator.device.reserve(length)
        block = Block(region, address, length, address)
        block.is_mapped, block.is_busy = False, True
        region.put_unmapped(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Map pages to the first ``size`` bytes of an unmapped block, and merge it."""
        region, page = block.region, self.page_of(block.region)
        mapped = min(-(-size // page) * page, block.size)
        if not self._allocator.device.map(block.address, mapped):
            return False
        region.take_unmapped(block)
        address = block.address
        if mapped < block.size:
            rest = _cut(block, address + mapped, keep_front=True)
            rest.is_mapped, rest.is_busy = False, True
            region.put_unmapped(rest)
        block.is_mapped, block.is_busy = True, False
        for neighbour in (block.prev, block.next):
            if neighbour is not None and not neighbour.is_busy:
                region.take(neighbour)
                _absorb(block, neighbour)
        region.put(block)
        self._allocator.reserved += mapped
        return True


def _set_segment(block: Block | None, address: int) -> None:
    """Set, for a block and those after it, where their range begins."""
    while block is not None:
        block.segment = address
        block = block.next


def _reach(block: Block) -> int:
    """Return the bytes to which a free block could grow."""
    following = block.next
    return block.size + (following.size if following is not None and not following.is_mapped else 0)


def _room_from(block: Block | None) -> int:
    """Return the bytes of the free and unmapped blocks from here on."""
    size = 0
    while block is not None and (not block.is_busy or not block.is_mapped):
        size += block.size
        block = block.next
    return size


def _cut(block: Block, address: int, *, keep_front: bool) -> Block:
    """Split ``block`` at ``address``; return the part that is split off."""
    if keep_front:
        other = Block(block.region, address, block.address + block.size - address, block.segment)
        other.prev, other.next = block, block.next
        if block.next is not None:
            block.next.prev = other
        block.next = other
    else:
        other = Block(block.region, block.address, address - block.address, block.segment)
        other.prev, other.next = block.prev, block
        if block.prev is not None:
            block.prev.next = other
        block.prev, block.address = other, address
    block.size -= other.size
    return other


def _absorb(block: Block, neighbour: Block) -> None:
    """Make ``neighbour`` a part of ``block``."""
    if block.prev is neighbour:
        block.address, block.prev = neighbour.address, neighbour.prev
        if neighbour.prev is not None:
            neighbour.prev.next = block
    else:
        block.next = neighbour.next
        if neighbour.next is not None:
            neighbour.next.prev = block
    block.size += neighbour.size
