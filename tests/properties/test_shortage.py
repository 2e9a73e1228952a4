"""What stands in the way is what, once freed, lets the request in."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.properties.allocator_runs import MIB, Program
from workbench.allocator.device import Device
from workbench.allocator.rounding import SMALL_SIZE, round_size
from workbench.allocator.settings import AllocatorSettings
from workbench.allocator.shortage import shortage
from workbench.allocator.simulator import CachingAllocator, OutOfMemoryError

slow = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


def run_out(seed: int, expandable: bool) -> tuple[CachingAllocator, int, int]:
    """An allocator on a small card, and the request (bytes, stream) that did not fit."""
    choose = random.Random(seed)
    rules = AllocatorSettings(expandable_segments=expandable)
    allocator = CachingAllocator(rules, Device(choose.randrange(100, 400) * MIB))
    program = Program(seed)
    live: list[int] = []
    for _ in range(3000):
        if live and choose.random() < 0.35:
            allocator.free(live.pop(choose.randrange(len(live))))
            continue
        size, stream = program.sizes(choose), choose.randrange(2)
        try:
            live.append(allocator.malloc(size, stream))
        except OutOfMemoryError:
            return allocator, size, stream
    return allocator, 0, 0


def runs(chain, size):
    """(bytes in use, addresses in use) of every run of at least ``size`` bytes."""
    for first in range(len(chain)):
        for last in range(first, len(chain)):
            part = chain[first : last + 1]
            if sum(block.size for block in part) >= size:
                busy = [block for block in part if block.is_busy]
                yield sum(block.size for block in busy)


def chains(allocator, size, stream):
    region = allocator.pools[0][size > SMALL_SIZE].region(stream)
    blocks = [b for b in allocator.blocks.values() if b.region is region]
    blocks += [entry[2] for entry in region.free]
    blocks.sort(key=lambda block: block.address)
    found = []
    for block in blocks:
        if (
            found
            and found[-1][-1].address + found[-1][-1].size == block.address
            and (block.prev is found[-1][-1])
        ):
            found[-1].append(block)
        else:
            found.append([block])
    return found


@slow
@given(st.integers(0, 2**32), st.booleans())
def test_no_run_of_neighbours_is_cheaper(seed, expandable):
    allocator, requested, stream = run_out(seed, expandable)
    assume(requested)
    found = shortage(allocator, requested, stream)
    size = round_size(requested, allocator.settings)
    cheapest = [cost for chain in chains(allocator, size, stream) for cost in runs(chain, size)]
    assert [one.in_use for one in found.obstacles[:1]] == sorted(cheapest)[:1]
    assert found.largest_free < size


@slow
@given(st.integers(0, 2**32), st.booleans())
def test_once_freed_the_request_fits(seed, expandable):
    allocator, requested, stream = run_out(seed, expandable)
    assume(requested)
    found = shortage(allocator, requested, stream)
    assume(found.obstacles)
    obstacle = found.obstacles[0]
    for address in obstacle.blocks:
        allocator.free(address)
    reserved = allocator.reserved
    assert allocator.malloc(requested, stream)
    assert allocator.reserved == reserved  # no new memory was needed


@slow
@given(st.integers(0, 2**32))
def test_free_bytes_are_counted_once(seed):
    allocator, requested, stream = run_out(seed, expandable=False)
    assume(requested)
    found = shortage(allocator, requested, stream)
    busy = sum(block.size for block in allocator.blocks.values())
    assert found.free + found.elsewhere + busy == allocator.reserved
