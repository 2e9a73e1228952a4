"""The rules of the caching allocator, written as plainly as they can be said.

Nothing is kept but segments and the blocks in use (`tests.properties.reference_memory`); what is
free is worked out anew for every question. It is slow, and shares no code with the simulator but
the description of the settings and the device that hands out addresses.
"""

from __future__ import annotations

from tests.properties.reference_memory import MIB, Gap, Segment, Used
from workbench.allocator.simulator.device import Device
from workbench.allocator.simulator.settings import AllocatorSettings


class ReferenceOutOfMemoryError(Exception):
    """There is not enough."""


class ReferenceAllocator:
    """What the simulator must do, in the same words from outside."""

    def __init__(self, settings: AllocatorSettings, device: Device, allowed: int | None) -> None:
        self.settings, self.device, self.allowed = settings, device, allowed
        self.segments: list[Segment] = []
        self.searches: dict[tuple[int, bool], int] = {}
        self.free_since: dict[tuple[int, int], int] = {}
        self.in_private_use: set[int] = set()
        self.privates: list[int] = []
        """Private pools in the order in which they were first used."""
        self.waiting: list[int] = []
        self.log: list[tuple[str, int, int]] = []
        self.num_retries = 0

    # Sizes

    def rounded(self, requested: int) -> int:
        """Bytes of a block."""
        at = 0
        while at < 15 and requested >= 2 * MIB * 2**at:
            at += 1
        divisions = self.settings.roundup_power2_divisions[at]
        if divisions > 1 and requested > 512 * divisions:
            power = 1
            while power * 2 <= requested:
                power *= 2
            step = power / divisions
            number = 0
            while power + number * step < requested:
                number += 1
            return int(power + number * step)
        return next(
            size
            for size in range(512 * (requested // 512), requested + 513, 512)
            if size >= max(requested, 512)
        )

    def segment_bytes(self, size: int) -> int:
        """Bytes of a new segment."""
        if size <= MIB:
            return 2 * MIB
        if size < 10 * MIB:
            return self.settings.large_segment_size
        return (size + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)

    # What the program does

    def malloc(self, requested: int, stream: int = 0, private: int = 0) -> int:
        size = self.rounded(requested)
        is_small = size <= MIB
        if self.collects:
            key = private, is_small
            self.searches[key] = self.searches.get(key, 0) + 1
        gap = self.fit(size, stream, private, is_small)
        if gap is None:
            gap = self.new_memory(size, stream, private, is_small)
        return self.place(gap, size, requested)

    def free(self, address: int) -> None:
        segment, used = self.find(address)
        if used.streams:
            used.waiting = True
            self.waiting.append(address)
        else:
            segment.used.remove(used)
            self.changed()

    def record_stream(self, address: int, stream: int) -> None:
        segment, used = self.find(address)
        if stream != segment.stream:
            used.streams.add(stream)

    def complete(self, address: int) -> None:
        self.waiting.remove(address)
        segment, used = self.find(address)
        segment.used.remove(used)
        self.changed()

    def add_pool(self, private: int) -> None:
        self.in_private_use.add(private)
        if private not in self.privates:
            self.privates.append(private)

    def release_pool(self, private: int) -> None:
        self.in_private_use.discard(private)

    def empty_cache(self) -> None:
        for address in list(self.waiting):
            self.complete(address)
        self.release_pool_memory(0, is_small=False)
        self.release_pool_memory(0, is_small=True)
        for private in self.privates:
            if private not in self.in_private_use:
                self.release_pool_memory(private, is_small=True)
                self.release_pool_memory(private, is_small=False)

    # How it finds memory

    @property
    def collects(self) -> bool:
        return self.allowed is not None and self.settings.garbage_collection_threshold > 0

    @property
    def reserved(self) -> int:
        return sum(end - start for one in self.segments for start, end in one.with_memory())

    def gaps(self, private: int, *, is_small: bool, stream: int | None = None) -> list[Gap]:
        """Free memory of a pool, or of one stream's, in the order in which it is kept."""
        found = [
            gap
            for segment in self.segments
            if (segment.private, segment.is_small) == (private, is_small)
            and stream in (None, segment.stream)
            for gap in segment.gaps()
        ]
        return sorted(found, key=Gap.key)

    def fit(self, size: int, stream: int, private: int, is_small: bool) -> Gap | None:
        gaps = self.gaps(private, is_small=is_small, stream=stream)
        fitting = [gap for gap in gaps if gap.size >= size]
        if not fitting:
            return None
        best = fitting[0]
        if self.settings.expandable_segments:
            for other in fitting[1:]:
                if other.could_grow_to() >= best.could_grow_to():
                    break
                best = other
        limit = self.settings.max_split_size
        if limit is not None:
            if size < limit and best.size >= limit:
                return None
            if size >= limit and best.size >= size + self.settings.max_non_split_rounding:
                return None
        return best

    def new_memory(self, size: int, stream: int, private: int, is_small: bool) -> Gap:
        if self.collects:
            self.collect_garbage()
        place = size, stream, private, is_small
        gap = self.from_driver(*place)
        if gap is None and self.release_oversize(*place):
            gap = self.from_driver(*place)
        if gap is None:
            self.empty_cache()
            self.num_retries += 1
            gap = self.from_driver(*place)
        if gap is None:
            raise ReferenceOutOfMemoryError
        return gap

    def from_driver(self, size: int, stream: int, private: int, is_small: bool) -> Gap | None:
        wanted = self.segment_bytes(size)
        if self.allowed is not None and self.reserved + wanted > self.allowed:
            return None
        if self.settings.expandable_segments:
            return self.pages(size, stream, private, is_small)
        address = self.device.allocate(wanted)
        if address is None:
            return None
        self.log.append(("new", address, wanted))
        segment = Segment(address, wanted, stream, private, is_small)
        self.segments.append(segment)
        self.changed()
        return Gap(segment, address, wanted)

    def pages(self, size: int, stream: int, private: int, is_small: bool) -> Gap | None:
        """The lowest addresses with room, whatever pages they miss mapped."""
        segment, start = self.room(size, stream, private, is_small)
        while True:
            end = segment.free_until(start)
            if end - start >= size:
                break
            missing = start + size - end
            number = -(-missing // segment.page)
            first = (end - segment.address) // segment.page
            run = 0
            while run < number and first + run not in segment.mapped:
                run += 1
            if not self.device.map(end, run * segment.page):
                self.changed()
                return None
            segment.mapped |= set(range(first, first + run))
            self.log.append(("map", end, run * segment.page))
        self.changed()
        return next(gap for gap in segment.gaps() if gap.address == start)

    def room(self, size: int, stream: int, private: int, is_small: bool) -> tuple[Segment, int]:
        """The lowest addresses between blocks with so much room, some of it without memory."""
        place = stream, private, is_small
        mine = [s for s in self.segments if s.page and (s.stream, s.private, s.is_small) == place]
        for segment in sorted(mine, key=lambda one: one.address):
            for start, end in segment.unused():
                if end - start >= size and not segment.has_memory(start, end):
                    return segment, start
        page = 2 * MIB if is_small else self.settings.large_segment_size
        length = -(-(self.device.total * 9 // 8) // page) * page
        segment = Segment(self.device.reserve(length), length, stream, private, is_small, page=page)
        self.segments.append(segment)
        return segment, segment.address

    def place(self, gap: Gap, size: int, requested: int) -> int:
        rest = gap.size - size
        if gap.segment.is_small or self.settings.expandable_segments:
            splits = rest >= 512
        else:
            limit = self.settings.max_split_size
            splits = rest > MIB and (limit is None or size < limit)
        gap.segment.used.append(Used(gap.address, size if splits else gap.size, requested))
        self.changed()
        return gap.address

    # How memory goes back

    def release_pool_memory(self, private: int, *, is_small: bool) -> None:
        for gap in self.gaps(private, is_small=is_small):
            if gap.segment.page:
                self.release_pages(gap)
            elif gap.is_whole():
                self.release(gap)

    def release(self, gap: Gap) -> None:
        self.segments.remove(gap.segment)
        self.device.free(gap.address, gap.size)
        self.log.append(("free", gap.address, gap.size))
        self.changed()

    def release_pages(self, gap: Gap) -> None:
        segment = gap.segment
        pages = sorted(segment.mapped & segment.pages(gap.address, gap.address + gap.size))
        if not pages:
            return
        segment.mapped -= set(pages)
        size = len(pages) * segment.page
        address = segment.address + pages[0] * segment.page
        self.device.unmap(address, size)
        self.log.append(("unmap", address, size))
        if not segment.mapped and not segment.used:
            self.segments.remove(segment)
        self.changed()

    def release_oversize(self, size: int, stream: int, private: int, is_small: bool) -> bool:
        limit = self.settings.max_split_size
        if limit is None or self.settings.expandable_segments:
            return False
        wanted = max(size, limit)
        mine = self.gaps(private, is_small=is_small, stream=stream)
        enough = [gap for gap in mine if gap.size >= wanted]
        if enough:
            self.release(enough[0])
            return True
        released = 0
        for gap in reversed(mine):
            if released >= wanted or gap.size < limit:
                break
            released += gap.size
            self.release(gap)
        return released >= wanted

    def collect_garbage(self) -> None:
        threshold = int(self.settings.garbage_collection_threshold * self.allowed)
        target, reclaimed = self.reserved - threshold, 0
        now = self.searches.get((0, False), 0)
        while reclaimed < target and not self.settings.expandable_segments:
            whole = [gap for gap in self.gaps(0, is_small=False) if gap.is_whole()]
            if not whole:
                return
            ages = {g.address: now - self.free_since[g.address, g.size] for g in whole}
            mean = sum(ages.values()) / len(ages)
            for gap in whole:
                if ages[gap.address] >= mean:
                    reclaimed += gap.size
                    self.release(gap)

    # Bookkeeping

    def find(self, address: int) -> tuple[Segment, Used]:
        return next(
            (segment, used)
            for segment in self.segments
            for used in segment.used
            if used.address == address
        )

    def changed(self) -> None:
        """Note since when each gap is there, in searches of its pool."""
        if not self.collects:
            return
        gaps = [gap for segment in self.segments for gap in segment.gaps()]
        old = self.free_since
        self.free_since = {}
        for gap in gaps:
            key = gap.address, gap.size
            now = self.searches.get((gap.segment.private, gap.segment.is_small), 0)
            self.free_since[key] = old.get(key, now)
