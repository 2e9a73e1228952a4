"""The CUDA caching allocator, without CUDA.

The rules are those of ``DeviceCachingAllocator`` in ``c10/cuda/CUDACachingAllocator.cpp``. A
request is rounded and looked for among the free blocks of its pool and stream, the smallest first
and of equal ones the lowest; what is too large is split, the front given out. A freed block merges
with free neighbours. What is not found comes from the driver as a new segment, and where the driver
has no more, segments without a block in use go back to it first.

Which of these rules a real trace has confirmed, `workbench.allocator.replay` says. Not modelled:
capturing of CUDA graphs; private pools that have an allocator of their own, never split, or are
used only when memory runs out; callbacks that free memory; and peers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from workbench.allocator.blocks import Block, Pool, Region
from workbench.allocator.device import Device
from workbench.allocator.expandable import Expandable
from workbench.allocator.rounding import MIN_BLOCK, SMALL_SIZE, round_size, segment_size
from workbench.allocator.settings import AllocatorSettings
from workbench.allocator.snapshot import SEGMENT_FREE, SEGMENT_UNMAP

_UNLIMITED = 2**63


class OutOfMemoryError(Exception):
    """The allocator gave back what it could, and there is still not enough."""

    def __init__(self, requested: int, size: int, reserved: int, capacity: int | None) -> None:
        self.requested, self.size = requested, size
        self.reserved, self.capacity = reserved, capacity
        room = "no more" if capacity is None else f"{capacity:,} B"
        super().__init__(
            f"out of memory: {requested:,} B were asked for, the allocator needs {size:,} B for "
            f"them, holds {reserved:,} B and may hold {room}"
        )


class CachingAllocator:
    """The allocator of one device.

    Args:
        settings: as of ``PYTORCH_CUDA_ALLOC_CONF``.
        device: where segments come from.
        allowed: bytes that it may hold (``set_per_process_memory_fraction``); None: no limit of its
            own. Garbage is collected only where there is one.
    """

    def __init__(
        self,
        settings: AllocatorSettings | None = None,
        device: Device | None = None,
        *,
        allowed: int | None = None,
    ) -> None:
        self.settings = settings or AllocatorSettings()
        self.device = device or Device()
        self.allowed = allowed
        self.blocks: dict[int, Block] = {}
        """Address -> block, of those in use and those that wait for a stream."""
        self.pools: dict[int, tuple[Pool, Pool]] = {}
        """Id -> its small and its large blocks; 0 is the default pool."""
        self.reserved = 0
        """Bytes held from the driver."""
        self.num_retries = 0
        """How often everything unused was given back to serve a request."""
        self.max_split = self.settings.max_split_size or _UNLIMITED
        self.expandable = Expandable(self) if self.settings.expandable_segments else None
        self._collects = allowed is not None and self.settings.garbage_collection_threshold > 0
        self._is_plain = not (self.expandable or self._collects or self.settings.max_split_size)
        self._divides = any(self.settings.roundup_power2_divisions)
        self._waiting: dict[int, Block] = {}
        """Address -> block, in the order in which they were freed."""
        self.add_pool(0)
        self._small, self._large = (pool.regions for pool in self.pools[0])

    def add_pool(self, private: int) -> None:
        """Begin to use a private pool (``torch.cuda.MemPool``)."""
        if private not in self.pools:
            keep = MIN_BLOCK - 1 if self.expandable else SMALL_SIZE
            self.pools[private] = (
                Pool(private, is_small=True, keep=MIN_BLOCK - 1),
                Pool(private, is_small=False, keep=keep),
            )
        for pool in self.pools[private]:
            pool.is_releasable = private == 0

    def release_pool(self, private: int) -> None:
        """End the use of a private pool: what is free in it may go back to the driver."""
        for pool in self.pools[private]:
            pool.is_releasable = True

    def malloc(
        self, requested: int, stream: int = 0, private: int = 0, *, search: bool = True
    ) -> int:
        """The address of a block for ``requested`` bytes (at least 1).

        Args:
            requested: bytes.
            stream: the stream it is for.
            private: id of the private pool it is from; 0 for the default one.
            search: whether free blocks are looked at; not where they have been, before the cache
                was emptied.

        Raises:
            OutOfMemoryError: neither a free block nor the driver has room for it.
            ValueError: there are no bytes to ask for.
        """
        size = round_size(requested, self.settings) if self._divides else requested + 511 & ~511
        if size <= 0:
            raise ValueError(f"{requested:,} B were asked for; a block has at least 1")
        if private:
            region = self.pools[private][size > SMALL_SIZE].region(stream)
        else:
            regions = self._small if size <= SMALL_SIZE else self._large
            found = regions.get(stream)
            region = found or self.pools[0][size > SMALL_SIZE].region(stream)
        free = region.free
        if not search:
            block = self._grow(region, size, requested)
        elif self._is_plain:
            at = bisect_left(free, (size,))
            block = free.pop(at)[2] if at < len(free) else self._grow(region, size, requested)
        else:
            block = self._find(region, size) or self._grow(region, size, requested)
        rest = block.size - size
        if rest > region.pool.keep and (size < self.max_split or region.pool.keep < SMALL_SIZE):
            tail = Block(region, block.address + size, rest, block.segment)
            tail.prev, tail.next = block, block.next
            if block.next is not None:
                block.next.prev = tail
            block.next = tail
            block.size = size
            tail.born = region.pool.num_searches
            insort(free, (rest, tail.address, tail))
        block.is_busy = True
        block.requested = requested
        self.blocks[block.address] = block
        return block.address

    def free(self, address: int) -> None:
        """Free the block at ``address``; it waits where other streams have used it."""
        block = self.blocks.get(address)
        if block is None or block.waiting:
            raise ValueError(f"no block at {address:#x} is in use")
        if block.streams:
            block.waiting = True
            self._waiting[address] = block
        else:
            self.put_back(block)

    def record_stream(self, address: int, stream: int) -> None:
        """Say that ``stream`` uses the block at ``address`` too."""
        block = self.blocks[address]
        if stream != block.region.stream:
            block.streams = (block.streams or set()) | {stream}

    def complete(self, address: int) -> None:
        """All streams are done with the freed block at ``address``."""
        block = self._waiting.pop(address)
        block.streams, block.waiting = None, False
        self.put_back(block)

    def empty_cache(self) -> None:
        """Give every segment back that has no block in use (``torch.cuda.empty_cache``)."""
        for address in list(self._waiting):
            self.complete(address)
        small, large = self.pools[0]
        self._release_all(large)
        self._release_all(small)
        for private, pools in self.pools.items():
            for pool in pools if private and pools[0].is_releasable else ():
                self._release_all(pool)

    def unused(self) -> list[tuple[int, int, int]]:
        """(action, address, bytes) of what `empty_cache` would give back now, in its order.

        Blocks that wait for a stream are not waited for.
        """
        small, large = self.pools[0]
        others = [p for id_, two in self.pools.items() if id_ and two[0].is_releasable for p in two]
        found: list[tuple[int, int, int]] = []
        for pool in (large, small, *others):
            for block in pool.free_blocks():
                if self.expandable is not None:
                    start, end = self.expandable.whole_pages(block)
                    if start < end:
                        found.append((SEGMENT_UNMAP, start, end - start))
                elif not block.is_split:
                    found.append((SEGMENT_FREE, block.address, block.size))
        return found

    def regions(self) -> Iterator[Region]:
        """Every region of every pool."""
        for pools in self.pools.values():
            for pool in pools:
                yield from pool.regions.values()

    def holds(self, size: int) -> bool:
        """Whether it may hold ``size`` bytes more."""
        return self.allowed is None or self.reserved + size <= self.allowed

    def put_back(self, block: Block) -> None:
        """Merge a block with the free ones before and after it, and make it free."""
        region = block.region
        del self.blocks[block.address]
        free = region.free
        before, after = block.prev, block.next
        if before is not None and not before.is_busy:
            del free[bisect_left(free, (before.size, before.address))]
            block.address = before.address
            block.size += before.size
            block.prev = before.prev
            if before.prev is not None:
                before.prev.next = block
        if after is not None and not after.is_busy:
            del free[bisect_left(free, (after.size, after.address))]
            block.size += after.size
            block.next = after.next
            if after.next is not None:
                after.next.prev = block
        block.is_busy = False
        block.born = region.pool.num_searches
        insort(free, (block.size, block.address, block))

    def _find(self, region: Region, size: int) -> Block | None:
        """A free block, where settings have a say in which."""
        if self._collects:
            region.pool.num_searches += 1
        free = region.free
        at = bisect_left(free, (size,))
        if at == len(free):
            return None
        if self.expandable is not None:
            at = self.expandable.best_fit(free, at)
        found = free[at][0]
        if size < self.max_split <= found:
            return None
        if size >= self.max_split and found >= size + self.settings.max_non_split_rounding:
            return None
        return free.pop(at)[2]

    def _grow(self, region: Region, size: int, requested: int) -> Block:
        """A block that is not in the pool yet."""
        if self._collects:
            self._collect_garbage()
        wanted = segment_size(size, self.settings)
        block = self._new(region, size, wanted)
        if block is None and self._release_oversize(region, size):
            block = self._new(region, size, wanted)
        if block is None:
            self.empty_cache()
            self.num_retries += 1
            block = self._new(region, size, wanted)
        if block is None:
            limits = [x for x in (self.allowed, self.device.capacity) if x is not None]
            raise OutOfMemoryError(requested, wanted, self.reserved, min(limits, default=None))
        return block

    def _new(self, region: Region, size: int, wanted: int) -> Block | None:
        if not self.holds(wanted):
            return None
        if self.expandable is not None:
            return self.expandable.new_block(region, size)
        address = self.device.allocate(wanted)
        if address is None:
            return None
        self.reserved += wanted
        return Block(region, address, wanted, address)

    def _release_all(self, pool: Pool) -> None:
        """Give back every segment of ``pool`` that is one free block."""
        blocks = pool.free_blocks()
        if self.expandable is not None:
            for block in blocks:
                self.expandable.release(block)
            return
        for block in blocks:
            if block.prev is None and block.next is None:
                self._release(block)

    def _release(self, block: Block) -> None:
        block.region.take(block)
        self.device.free(block.address, block.size)
        self.reserved -= block.size

    def _release_oversize(self, region: Region, size: int) -> bool:
        """Give back blocks that are too large to be split, as many as the request needs.

        ``release_available_cached_blocks``: only where ``max_split_size`` is set.
        """
        if self.settings.max_split_size is None or self.expandable is not None:
            return False
        wanted = max(size, self.max_split)
        free = region.free
        at = bisect_left(free, (wanted,))
        if at < len(free):
            self._release(free[at][2])
            return True
        released = 0
        while released < wanted and free and free[-1][0] >= self.max_split:
            released += free[-1][0]
            self._release(free[-1][2])
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Give back segments that have not been used for longer than the others.

        ``garbage_collect_cached_blocks``: the large blocks of the default pool; an age is counted
        in searches of that pool.
        """
        threshold = int(self.settings.garbage_collection_threshold * (self.allowed or 0))
        pool = self.pools[0][1]
        target = self.reserved - threshold
        candidates = [block for block in pool.free_blocks() if not block.is_split]
        total = sum(pool.num_searches - block.born for block in candidates)
        reclaimed = 0
        while reclaimed < target and candidates and self.expandable is None:
            mean = total / len(candidates)
            kept: list[Block] = []
            for block in candidates:
                age = pool.num_searches - block.born
                if age < mean:
                    kept.append(block)
                    continue
                reclaimed += block.size
                total -= age
                self._release(block)
            candidates = kept
