"""A block, and the free blocks of one pool on one stream.

`CachingAllocator` and `Expandable` work on these and nothing else does; both write fields directly,
because a replay does so some million times a second.
"""

from __future__ import annotations

from bisect import bisect_left, insort

FreeList = list[tuple[int, int, "Block"]]
"""(size, address, block), ascending: the order in which the allocator looks for a fit."""


class Block:
    """A stretch of addresses that is handed out, free, or not mapped."""

    __slots__ = (
        "address",
        "born",
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
        """Address of the segment, of the whole range where it is expandable."""
        self.requested = 0
        """Bytes asked for; of a free block those of its last owner."""
        self.is_busy = False
        """Whether it can be neither given out nor merged: in use, or waiting for a stream."""
        self.is_mapped = True
        self.prev: Block | None = None
        self.next: Block | None = None
        self.streams: set[int] | None = None
        """Other streams that have used it since it was allocated."""
        self.waiting = False
        """Whether the program has freed it and a stream may still use it."""
        self.born = 0
        """How many searches its pool had seen when it became free."""

    @property
    def is_split(self) -> bool:
        """Whether it is a part of its segment only."""
        return self.prev is not None or self.next is not None


class Pool:
    """The small or the large blocks of the default pool, or of a private one."""

    __slots__ = ("id", "is_releasable", "is_small", "keep", "num_searches", "regions")

    def __init__(self, private: int, *, is_small: bool, keep: int) -> None:
        self.id = private
        """0 for the default pool."""
        self.is_small = is_small
        self.keep = keep
        """Bytes beyond a request that stay with the block: more is split off."""
        self.is_releasable = True
        """Whether its free segments may go back to the driver; not while a private pool is used."""
        self.num_searches = 0
        self.regions: dict[int, Region] = {}

    def region(self, stream: int) -> Region:
        """Its blocks on ``stream``."""
        found = self.regions.get(stream)
        if found is None:
            found = self.regions[stream] = Region(self, stream)
        return found

    def free_blocks(self) -> list[Block]:
        """All free blocks in the pool's own order: by stream, size, address."""
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
        """Make ``block`` one of the free ones."""
        insort(self.free, (block.size, block.address, block))
        block.born = self.pool.num_searches

    def take(self, block: Block) -> None:
        """Take a free block out."""
        del self.free[bisect_left(self.free, (block.size, block.address))]

    def put_unmapped(self, block: Block) -> None:
        """Add a block without memory."""
        insort(self.unmapped, (block.address, block))

    def take_unmapped(self, block: Block) -> None:
        """Take out a block without memory."""
        del self.unmapped[bisect_left(self.unmapped, (block.address,))]


def _unsigned(stream: int) -> int:
    """Streams are pointers, compared as such; here they are signed."""
    return stream if stream >= 0 else stream + 2**64
