"""Segments as the plain rules see them: what is free is what no block covers.

The free stretches between blocks are worked out anew for every question. So there is no merging to
get wrong, no list to keep in order, no pointer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

MIB = 1024 * 1024
_ADDRESS = attrgetter("address")


@dataclass
class Used:
    """A block in use, or waiting for streams."""

    address: int
    size: int
    requested: int
    streams: set[int] = field(default_factory=set)
    waiting: bool = False


@dataclass
class Segment:
    """Memory of one pool on one stream."""

    address: int
    size: int
    stream: int
    private: int
    is_small: bool
    page: int = 0
    """Bytes of a page where it is expandable, else 0."""
    mapped: set[int] = field(default_factory=set)
    """Pages with memory behind them, counted from its address."""
    used: list[Used] = field(default_factory=list)

    def unused(self) -> list[tuple[int, int]]:
        """(address, end) of what no block covers, with or without memory behind it."""
        found, at = [], self.address
        for used in sorted(self.used, key=_ADDRESS):
            if used.address > at:
                found.append((at, used.address))
            at = used.address + used.size
        if at < self.address + self.size:
            found.append((at, self.address + self.size))
        return found

    def with_memory(self) -> list[tuple[int, int]]:
        """(address, end) of what has memory behind it, as long as possible each."""
        if not self.page:
            return [(self.address, self.address + self.size)]
        found: list[tuple[int, int]] = []
        for page in sorted(self.mapped):
            start = self.address + page * self.page
            if found and found[-1][1] == start:
                found[-1] = found[-1][0], start + self.page
            else:
                found.append((start, start + self.page))
        return found

    def gaps(self) -> list[Gap]:
        """What is free: no block covers it, and memory is behind it."""
        if not self.page:
            return [Gap(self, start, end - start) for start, end in self.unused()]
        found, stretches, first = [], self.with_memory(), 0
        for start, end in self.unused():
            while first < len(stretches) and stretches[first][1] <= start:
                first += 1  # it ends before this one, and before all that follow
            for begin, stop in islice(stretches, first, None):
                if begin >= end:
                    break
                left, right = max(start, begin), min(end, stop)
                found.append(Gap(self, left, right - left))
        return found

    # Of expandable ones

    def pages(self, start: int, end: int) -> set[int]:
        """The pages that lie wholly between two addresses."""
        first = -(-(start - self.address) // self.page)
        return set(range(first, (end - self.address) // self.page))

    def has_memory(self, start: int, end: int) -> bool:
        """Whether no page between two addresses is missing."""
        return self.pages(start, end) <= self.mapped

    def free_until(self, start: int) -> int:
        """The end of the gap that begins at ``start``; ``start`` where there is none."""
        return next((start + gap.size for gap in self.gaps() if gap.address == start), start)


@dataclass(slots=True)
class Gap:
    """Free memory between two blocks."""

    segment: Segment
    address: int
    size: int

    def is_whole(self) -> bool:
        """Whether nothing else is in its segment."""
        return self.size == self.segment.size

    def key(self) -> tuple[int, int, int]:
        """What the allocator orders free blocks by."""
        return self.segment.stream, self.size, self.address

    def could_grow_to(self) -> int:
        """Its bytes and those without memory right behind it; for expandable segments."""
        segment, end = self.segment, self.address + self.size
        if (end - segment.address) % segment.page:
            return self.size  # a block in the same page follows
        page = (end - segment.address) // segment.page
        while page < segment.size // segment.page and page not in segment.mapped:
            page += 1
        return segment.address + page * segment.page - self.address
