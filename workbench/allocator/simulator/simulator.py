"""The CUDA caching allocator, without CUDA.

The rules are those of ``DeviceCachingAllocator`` in ``c10/cuda/CUDACachingAllocator.cpp``. A
request is rounded and searched for among the free blocks of its pool and stream, the smallest first
and of equal ones the one with the lowest address; a block that is too large is split, and its front
is returned. A freed block merges with free neighbours. If nothing fits, a new segment is allocated
from the driver, and if the driver has no more memory, segments without a block in use are released
to it first (`workbench.allocator.simulator.release`).

`workbench.allocator.replay.replay` reports which of these rules a real trace has confirmed. Not
modelled: capturing of CUDA graphs; private pools that have an allocator of their own, never split,
or are used only when memory runs out; callbacks that free memory; and peers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from workbench.allocator.simulator.blocks import Block, FreeList, Pool, Region
from workbench.allocator.simulator.device import Device
from workbench.allocator.simulator.expandable_segments import Expandable
from workbench.allocator.simulator.release import collect_garbage, release_oversize, release_unused
from workbench.allocator.simulator.rounding import MIN_BLOCK, SMALL_SIZE, round_size, segment_size
from workbench.allocator.simulator.settings import AllocatorSettings

_UNLIMITED = 2**63


class OutOfMemoryError(Exception):
    """The allocator released what it could, and there is still not enough memory."""

    def __init__(self, requested: int, size: int, reserved: int, capacity: int | None) -> None:
        self.requested, self.size = requested, size
        self.reserved, self.capacity = reserved, capacity
        room = "no more" if capacity is None else f"{capacity:,} B"
        super().__init__(
            f"out of memory: {requested:,} B were requested, the allocator needs {size:,} B for "
            f"them, holds {reserved:,} B and may hold {room}"
        )


class CachingAllocator:
    """The allocator of one device.

    Args:
        settings: as in ``PYTORCH_CUDA_ALLOC_CONF``.
        device: where segments come from.
        allowed: bytes that it may hold (``set_per_process_memory_fraction``); None: no limit of its
            own. Garbage is collected only if there is a limit.
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
        """Address -> block, for blocks in use and blocks that wait for a stream."""
        self.pools: dict[int, tuple[Pool, Pool]] = {}
        """Id -> its small and its large blocks; 0 is the default pool."""
        self.reserved = 0
        """Bytes held from the driver."""
        self.num_retries = 0
        """How often everything unused was released to serve a request."""
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
        """End the use of a private pool: its free segments may be released to the driver."""
        for pool in self.pools[private]:
            pool.is_releasable = True

    def malloc(
        self, requested: int, stream: int = 0, private: int = 0, *, search: bool = True
    ) -> int:
        """Allocate a block for ``requested`` bytes (at least 1) and return its address.

        Args:
            requested: bytes.
            stream: the stream it is for.
            private: id of the private pool it is from; 0 for the default one.
            search: whether free blocks are searched; False if that has been done, before the cache
                was emptied.

        Raises:
            OutOfMemoryError: neither a free block nor the driver has room for it.
            ValueError: ``requested`` is not positive.
        """
        if requested <= 0:
            raise ValueError(f"{requested:,} B were requested; a block has at least 1")
        size = round_size(requested, self.settings) if self._divides else requested + 511 & ~511
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
            tail.free_since = region.pool.num_searches
            insort(free, (rest, tail.address, tail))
        block.is_busy = True
        block.requested = requested
        self.blocks[block.address] = block
        return block.address

    def fit(self, requested: int, stream: int = 0, private: int = 0) -> int | None:
        """Return the address of the free block that `malloc` would use; None if there is none."""
        size = round_size(requested, self.settings)
        free = self.pools[private][size > SMALL_SIZE].region(stream).free
        at = self._place_of_fit(free, size)
        return None if at is None else free[at][1]

    def takes(self, size: int, found: int) -> bool:
        """Return whether a free block of ``found`` bytes, enough for ``size``, may serve it."""
        if size < self.max_split:
            return found < self.max_split
        return found < size + self.settings.max_non_split_rounding

    def free(self, address: int) -> None:
        """Free the block at ``address``; it waits if other streams have used it."""
        block = self.blocks.get(address)
        if block is None or block.waiting:
            raise ValueError(f"no block at {address:#x} is in use")
        if block.streams:
            block.waiting = True
            self._waiting[address] = block
        else:
            self.put_back(block)

    def record_stream(self, address: int, stream: int) -> None:
        """Record that ``stream`` also uses the block at ``address``."""
        block = self.blocks[address]
        if stream != block.region.stream:
            block.streams = (block.streams or set()) | {stream}

    def complete(self, address: int) -> None:
        """Free the block at ``address`` for which all streams are done."""
        block = self._waiting.pop(address)
        block.streams, block.waiting = None, False
        self.put_back(block)

    def empty_cache(self) -> None:
        """Release every segment that has no block in use (``torch.cuda.empty_cache``)."""
        for address in list(self._waiting):
            self.complete(address)
        release_unused(self)

    def regions(self) -> Iterator[Region]:
        """Yield every region of every pool."""
        for pools in self.pools.values():
            for pool in pools:
                yield from pool.regions.values()

    def holds(self, size: int) -> bool:
        """Return whether it may hold ``size`` additional bytes."""
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
        block.free_since = region.pool.num_searches
        insort(free, (block.size, block.address, block))

    def _find(self, region: Region, size: int) -> Block | None:
        """Find a free block if settings affect which one is chosen."""
        if self._collects:
            region.pool.num_searches += 1
        at = self._place_of_fit(region.free, size)
        return None if at is None else region.free.pop(at)[2]

    def _place_of_fit(self, free: FreeList, size: int) -> int | None:
        at = bisect_left(free, (size,))
        if at == len(free):
            return None
        if self.expandable is not None:
            at = self.expandable.best_fit(free, at)
        return at if self.takes(size, free[at][0]) else None

    def _grow(self, region: Region, size: int, requested: int) -> Block:
        """Allocate a block that is not in the pool yet."""
        if self._collects:
            collect_garbage(self)
        wanted = segment_size(size, self.settings)
        block = self._new(region, size, wanted)
        if block is None and release_oversize(self, region, size):
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
