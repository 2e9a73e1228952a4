"""The allocator's rules, one at a time, with numbers worked out by hand.

Whether they hold together under any program, `tests.properties.test_allocator` says; whether they
are CUDA's, real traces do (`test_replay`).
"""

from __future__ import annotations

import pytest

from workbench.allocator.simulator.device import Device
from workbench.allocator.simulator.settings import KIB, MIB, AllocatorSettings
from workbench.allocator.simulator.simulator import CachingAllocator, OutOfMemoryError


def allocator(words: str = "", capacity: int | None = None, allowed: int | None = None):
    return CachingAllocator(AllocatorSettings.parse(words), Device(capacity), allowed=allowed)


def size_of(found: CachingAllocator, address: int) -> int:
    return found.blocks[address].size


@pytest.mark.parametrize(
    ("requested", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # a rest of 1 MiB is too little to split off
    ],
)
def test_a_request_is_rounded_and_gets_a_segment_by_its_size(requested, block, segment):
    found = allocator()
    assert size_of(found, found.malloc(requested)) == block
    assert found.reserved == segment


@pytest.mark.parametrize("words", ["", "roundup_power2_divisions:4"])
@pytest.mark.parametrize("requested", [0, -1])
def test_nothing_is_no_request(words, requested):
    with pytest.raises(ValueError, match=f"{requested} B were requested; a block has at least 1"):
        allocator(words).malloc(requested)


def test_a_large_block_keeps_a_rest_of_one_mib_and_a_small_one_none():
    found = allocator()
    whole = found.malloc(10 * MIB)
    found.free(whole)
    assert size_of(found, found.malloc(9 * MIB)) == 10 * MIB  # 1 MiB is not more than 1 MiB
    found.free(whole)
    assert size_of(found, found.malloc(9 * MIB - 512)) == 9 * MIB - 512
    small = found.malloc(MIB - 512)
    assert found.malloc(512) == small + MIB - 512


def test_the_smallest_free_block_that_fits_is_taken_and_of_equals_the_lowest():
    found = allocator()
    blocks = [found.malloc(size * KIB) for size in (8, 1, 4, 1, 4, 1)]
    for address in (blocks[4], blocks[0], blocks[2]):
        found.free(address)
    assert found.malloc(3 * KIB) == blocks[2]
    assert found.malloc(4 * KIB) == blocks[4]
    assert found.malloc(4 * KIB) == blocks[0]


def test_a_freed_block_merges_with_both_neighbours():
    found = allocator()
    first, second, third, _ = (found.malloc(4 * KIB) for _ in range(4))
    found.free(first)
    found.free(third)
    assert found.fit(12 * KIB) == third + 8 * KIB  # behind the last one
    found.free(second)
    assert found.fit(12 * KIB) == first


def test_no_stream_and_no_pool_is_given_what_belongs_to_another():
    found = allocator()
    found.add_pool(7)
    found.free(found.malloc(KIB))
    reserved = found.reserved
    found.malloc(KIB, stream=1)
    found.malloc(KIB, private=7)
    assert found.reserved == reserved + 2 * 2 * MIB
    found.malloc(KIB)
    assert found.reserved == reserved + 2 * 2 * MIB


def test_a_block_that_another_stream_uses_is_free_once_that_is_done():
    found = allocator()
    address = found.malloc(KIB)
    found.record_stream(address, 0)  # its own
    found.record_stream(address, 3)
    found.free(address)
    assert found.malloc(KIB) != address
    found.complete(address)
    assert found.malloc(KIB) == address


def test_what_is_freed_twice_or_was_never_there_is_refused():
    found = allocator()
    address = found.malloc(KIB)
    found.free(address)
    for wrong in (address, 12345):
        with pytest.raises(ValueError, match=f"no block at {wrong:#x} is in use"):
            found.free(wrong)


def test_where_the_driver_has_no_more_unused_segments_go_back_first():
    found = allocator(capacity=64 * MIB)
    kept, unused = found.malloc(20 * MIB), found.malloc(20 * MIB)
    found.free(unused)
    found.malloc(40 * MIB)
    assert (found.reserved, found.num_retries) == (60 * MIB, 1)
    assert size_of(found, kept) == 20 * MIB
    with pytest.raises(OutOfMemoryError, match="holds 62,914,560 B and may hold 67,108,864 B"):
        found.malloc(20 * MIB)


def test_a_segment_with_one_block_in_use_stays_when_the_cache_is_emptied():
    found = allocator()
    pinned, unused = found.malloc(2 * MIB), found.malloc(30 * MIB)
    found.free(unused)
    found.empty_cache()
    assert found.reserved == 20 * MIB
    found.free(pinned)
    found.empty_cache()
    assert found.reserved == found.device.in_use == 0


def test_a_private_pool_keeps_its_memory_until_its_use_ends():
    found = allocator()
    found.add_pool(7)
    found.free(found.malloc(KIB, private=7))
    found.empty_cache()
    assert found.reserved == 2 * MIB
    found.release_pool(7)
    found.empty_cache()
    assert found.reserved == 0


def test_beyond_max_split_size_blocks_stay_whole_and_small_requests_go_elsewhere():
    found = allocator("max_split_size_mb:32")
    large = found.malloc(40 * MIB)
    found.free(large)
    assert found.malloc(4 * MIB) != large
    assert found.malloc(34 * MIB) == large
    assert size_of(found, large) == 40 * MIB
    found.free(large)
    assert found.malloc(64 * MIB) != large
    other = found.malloc(100 * MIB)
    found.free(other)
    found.malloc(40 * MIB)
    assert found.malloc(50 * MIB) != other  # 100 MiB are 20 MiB or more beyond it


def test_garbage_is_what_lay_unused_for_longer_than_the_others():
    found = allocator("garbage_collection_threshold:0.5", allowed=100 * MIB)
    old, young = found.malloc(20 * MIB), found.malloc(24 * MIB)
    found.free(old)
    found.malloc(26 * MIB)  # looked for while one of the two was free
    found.free(young)
    assert found.reserved == 70 * MIB
    found.malloc(30 * MIB)
    assert found.fit(20 * MIB) == young
    assert found.reserved == (24 + 26 + 30) * MIB


def test_an_expandable_segment_grows_by_pages_and_gives_whole_ones_back():
    found = allocator("expandable_segments:True")
    first, second = found.malloc(30 * MIB), found.malloc(30 * MIB)
    assert second == first + 30 * MIB
    assert found.reserved == 60 * MIB
    found.free(second)
    found.empty_cache()
    assert found.reserved == 40 * MIB  # a page lies under both
    assert found.malloc(100 * MIB) == second
    assert found.reserved == 140 * MIB
