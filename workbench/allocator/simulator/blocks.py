"""A block, and the free blocks of one pool on one stream.

Only `CachingAllocator` and `Expandable` work on these; both write fields directly, because a replay
does so some million times per second.
"""

from __future__ import annotations

from bisect import bisect_left, insort

FreeList = list[tuple[int, int, "Block"]]
"""(size, address, block), ascending: the order in which the allocator searches for a fit."""


class Block:
    """A range of addresses that is in use, free, or not mapped."""

    __slots__ = (
        "address",
        "free_since",
        "is_busy",
        "is_mapped",
        "next",
        "prev",
        "region",
        "requested",
        "segment",
        "size",
        "streams",
        "waiting",
    )

    def __init__(self, region: Region, address: int, size: int, segment: int) -> None:
        self.region = region
        self.address = address
        self.size = size
        """Bytes."""
        self.segment = segment
        """Address of the segment; of the whole range if it is expandable."""
        self.requested = 0
        """Requested bytes; for a free block, those of its last owner."""
        self.is_busy = False
        """Whether it can be neither allocated nor merged: in use, or waiting for a stream."""
        self.is_mapped = True
        self.prev: Block | None = None
        self.next: Block | None = None
        self.streams: set[int] | None = None
        """Other streams that have used it since it was allocated."""
        self.waiting = False
        """Whether the program has freed it and a stream may still use it."""
        self.free_since = 0
        """The number of searches in its pool up to the moment when it became free."""

    @property
    def is_split(self) -> bool:
        """Whether it is only a part of its segment."""
        return self.prev is not None or self.next is not None


class Pool:
    """The small or the large blocks of the default pool, or of a private one."""

    __slots__ = ("id", "is_releasable", "is_small", "keep", "num_searches", "regions")

    def __init__(self, private: int, *, is_small: bool, keep: int) -> None:
        self.id = private
        """0 for the default pool."""
        self.is_small = is_small
        self.keep = keep
        """Bytes beyond a request that stay with the block: more than that is split off."""
        self.is_releasable = True
        """Whether its free segments may be released to the driver; False while a private pool is
        used."""
        self.num_searches = 0
        self.regions: dict[int, Region] = {}

    def region(self, stream: int) -> Region:
        """Return its blocks on ``stream``."""
        found = self.regions.get(stream)
        if found is None:
            found = self.regions[stream] = Region(self, stream)
        return found

    def free_blocks(self) -> list[Block]:
        """Return all free blocks in the pool's own order: by stream, size, address."""
        streams = sorted(self.regions, key=_unsigned)
        return [entry[2] for stream in streams for entry in self.regions[stream].free]


class Region:
    """The blocks of one pool on one stream: no other stream is ever given one of them."""

    __slots__ = ("free", "pool", "stream", "unmapped")

    def __init__(self, pool: Pool, stream: int) -> None:
        self.pool = pool
        self.stream = stream
        self.free: FreeList = []
        self.unmapped: list[tuple[int, Block]] = []
        """(address, block) of expandable segments, ascending."""

    def put(self, block: Block) -> None:
        """Add ``block`` to the free ones."""
        insort(self.free, (block.size, block.address, block))
        block.free_since = self.pool.num_searches

    def take(self, block: Block) -> None:
        """Remove a free block."""
        del self.free[bisect_left(self.free, (block.size, block.address))]

    def put_unmapped(self, block: Block) -> None:
        """Add a block without memory."""
        insort(self.unmapped, (block.address, block))

    def take_unmapped(self, block: Block) -> None:
        """Remove a block without memory."""
        del self.unmapped[bisect_left(self.unmapped, (block.address,))]


def _unsigned(stream: int) -> int:
    """Streams are pointers and compared as unsigned numbers; here they are signed."""
    return stream if stream >= 0 else stream + 2**64
