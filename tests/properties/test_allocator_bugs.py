"""Bugs put into the simulator on purpose: comparing it with the plain rules finds each of them."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from tests.properties.allocator_runs import MIB, Program, Run
from workbench.allocator.simulator import blocks, expandable_segments, release, rounding, simulator
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.simulator.simulator import CachingAllocator, OutOfMemoryError

PROGRAMS = [
    Program(1, num_streams=2),
    Program(2, num_streams=2, capacity=300 * MIB, has_private=True),
    Program(3, AllocatorSettings(max_split_size=32 * MIB), capacity=400 * MIB),
    Program(4, AllocatorSettings(max_split_size=24 * MIB), capacity=300 * MIB, most_live=20),
    Program(5, AllocatorSettings(roundup_power2_divisions=(4,) * 16)),
    Program(6, AllocatorSettings(garbage_collection_threshold=0.5), allowed=400 * MIB),
    Program(7, AllocatorSettings(expandable_segments=True), capacity=300 * MIB),
    Program(8, AllocatorSettings(expandable_segments=True), num_streams=2),
]


def first_difference(make=CachingAllocator) -> str:
    """Of all programs; also what a broken simulator raises is one."""
    for program in PROGRAMS:
        try:
            found = Run(program, make).difference(4000, check_every=5)
        except (
            KeyError,
            ValueError,
            IndexError,
            OutOfMemoryError,
        ) as error:  # what broken lists do
            found = f"{type(error).__name__}: {error}"
        if found:
            return found
    return ""


def test_without_a_bug_nothing_differs():
    assert first_difference() == ""


def splits_one_too_early(patch):
    """A remainder of exactly 1 MiB is split off."""
    original = CachingAllocator.add_pool

    def add_pool(self, private):
        original(self, private)
        self.pools[private][1].keep = min(self.pools[private][1].keep, MIB - 1)

    patch.setattr(CachingAllocator, "add_pool", add_pool)


def splits_small_blocks_too_late(patch):
    original = CachingAllocator.add_pool

    def add_pool(self, private):
        original(self, private)
        self.pools[private][0].keep = 512

    patch.setattr(CachingAllocator, "add_pool", add_pool)


def merges_in_the_wrong_order(patch):
    """The block joins the free ones before it has merged with what comes after it."""

    def put_back(self, block):
        region = block.region
        del self.blocks[block.address]
        block.is_busy = False
        region.put(block)
        after = block.next
        if after is not None and not after.is_busy:
            region.take(after)
            block.size += after.size
            block.next = after.next
            if after.next is not None:
                after.next.prev = block

    patch.setattr(CachingAllocator, "put_back", put_back)


def does_not_merge_with_what_is_before(patch):
    original = CachingAllocator.put_back

    def put_back(self, block):
        before = block.prev
        if before is not None and not before.is_busy:
            before.is_busy = True
            original(self, block)
            before.is_busy = False
        else:
            original(self, block)

    patch.setattr(CachingAllocator, "put_back", put_back)


def takes_the_wrong_pool(patch):
    """A block of exactly 1 MiB is taken for a large one."""
    patch.setattr(simulator, "SMALL_SIZE", MIB - 512)


def takes_the_highest_address(patch):
    """Of free blocks of one size."""

    def highest(free, key):
        at = bisect_left(free, key)
        while len(key) == 1 and at + 1 < len(free) and free[at + 1][0] == free[at][0]:
            at += 1
        return at

    patch.setattr(simulator, "bisect_left", highest)


def mixes_the_streams(patch):
    original = blocks.Pool.region
    patch.setattr(blocks.Pool, "region", lambda self, _stream: original(self, 0))


def frees_a_block_that_a_stream_still_uses(patch):
    patch.setattr(CachingAllocator, "record_stream", lambda *_: None)


def counts_its_own_stream_as_another(patch):
    def record_stream(self, address, stream):
        block = self.blocks[address]
        block.streams = (block.streams or set()) | {stream}

    patch.setattr(CachingAllocator, "record_stream", record_stream)


def gives_back_small_segments_first(patch):
    original = release.release_pool
    held = []

    def release_pool(allocator, pool):
        if pool.id == 0 and not pool.is_small:
            held.append(pool)
            return
        original(allocator, pool)
        if pool.id == 0:
            original(allocator, held.pop())

    patch.setattr(release, "release_pool", release_pool)


def gives_a_private_pool_back_while_it_is_used(patch):
    original = CachingAllocator.add_pool

    def add_pool(self, private):
        original(self, private)
        for pool in self.pools[private]:
            pool.is_releasable = True

    patch.setattr(CachingAllocator, "add_pool", add_pool)


def gives_a_large_block_to_a_small_request(patch):
    """The limit of ``max_split_size`` is not looked at."""

    def find(self, region, size):
        at = bisect_left(region.free, (size,))
        return region.free.pop(at)[2] if at < len(region.free) else None

    patch.setattr(CachingAllocator, "_find", find)


def gives_back_one_block_too_few(patch):
    patch.setattr(simulator, "release_oversize", lambda *_: False)


def rounds_to_the_wrong_step(patch):
    original = rounding.round_size
    patch.setattr(
        simulator, "round_size", lambda size, s: original(size + (size > 3 * MIB) * MIB, s)
    )


def never_collects_garbage(patch):
    patch.setattr(simulator, "collect_garbage", lambda _: None)


def forgets_how_old_a_block_is(patch):
    original = release.collect_garbage

    def collect(allocator):
        for block in allocator.pools[0][1].free_blocks():
            block.free_since = 0
        original(allocator)

    patch.setattr(simulator, "collect_garbage", collect)


def maps_one_page_too_many(patch):
    original = expandable_segments.Expandable._map

    def map_pages(self, block, size):
        return original(self, block, min(size + self.page_of(block.region), block.size))

    patch.setattr(expandable_segments.Expandable, "_map", map_pages)


def takes_the_smallest_block_though_it_could_grow_far(patch):
    patch.setattr(expandable_segments.Expandable, "best_fit", lambda _self, _free, at: at)


def does_not_begin_in_the_free_block_before(patch):
    patch.setattr(
        expandable_segments, "_room_from", lambda block: 0 if block.is_mapped else block.size
    )


BUGS = [
    value
    for name, value in list(globals().items())
    if callable(value)
    and (getattr(value, "__module__", "") == __name__ and not name.startswith(("test_", "first_")))
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_found(bug, monkeypatch):
    bug(monkeypatch)
    assert first_difference() != ""
