"""What is free and cannot be given back."""

from __future__ import annotations

import pytest

from workbench.allocator.simulator.release import inactive_split
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.simulator.simulator import CachingAllocator

MIB = 2**20


def test_free_blocks_beside_used_ones_are_fragments_until_the_segment_is_free() -> None:
    allocator = CachingAllocator()
    first, second = allocator.malloc(2 * MIB), allocator.malloc(2 * MIB)
    assert inactive_split(allocator) == 16 * MIB  # what is left of a segment of 20 MiB
    allocator.free(first)
    assert inactive_split(allocator) == 18 * MIB
    allocator.free(second)
    assert inactive_split(allocator) == 0
    assert allocator.reserved == 20 * MIB


def test_small_and_private_pools_count_too() -> None:
    allocator = CachingAllocator()
    allocator.add_pool(7)
    allocator.malloc(512)
    assert inactive_split(allocator) == 2 * MIB - 512
    allocator.malloc(4 * MIB, 0, 7)
    assert inactive_split(allocator) == 2 * MIB - 512 + 16 * MIB


@pytest.mark.parametrize("settings", ["expandable_segments:True"])
def test_expandable_segments_are_left_out_as_torch_does(settings: str) -> None:
    allocator = CachingAllocator(AllocatorSettings.parse(settings))
    first = allocator.malloc(2 * MIB)
    allocator.malloc(2 * MIB)
    allocator.free(first)
    assert inactive_split(allocator) == 0
