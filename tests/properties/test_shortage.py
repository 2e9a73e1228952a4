"""What stands in the way is what, once freed, lets the request in."""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.cost import cost
from tests.properties.allocator_runs import MIB, Program
from workbench.allocator.shortage import shortage
from workbench.allocator.simulator.device import Device
from workbench.allocator.simulator.rounding import SMALL_SIZE, round_size
from workbench.allocator.simulator.segment_emptying import cheapest_to_empty
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.simulator.simulator import CachingAllocator, OutOfMemoryError

slow = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


RULES = st.sampled_from(
    [
        AllocatorSettings(),
        AllocatorSettings(expandable_segments=True),
        AllocatorSettings(max_split_size=24 * MIB),
        AllocatorSettings(roundup_power2_divisions=(4,) * 16),
    ]
)


def run_out(seed: int, rules: AllocatorSettings) -> tuple[CachingAllocator, int, int]:
    """An allocator on a small card, and the request (bytes, stream) that did not fit."""
    choose = random.Random(seed)
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
    """Bytes in use of every run of at least ``size`` bytes."""
    for first in range(len(chain)):
        for last in range(first, len(chain)):
            part = chain[first : last + 1]
            if sum(block.size for block in part) >= size:
                busy = [block for block in part if block.is_busy]
                yield sum(block.size for block in busy)


def chains(allocator, size, stream):
    return chains_of(allocator, allocator.pools[0][size > SMALL_SIZE].region(stream))


def chains_of(allocator, region):
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
@given(st.integers(0, 2**32), st.sampled_from([False, True]))
def test_no_run_of_neighbours_is_cheaper(seed, expandable):
    allocator, requested, stream = run_out(seed, AllocatorSettings(expandable_segments=expandable))
    assume(requested)
    found = shortage(allocator, requested, stream)
    size = round_size(requested, allocator.settings)
    cheapest = [cost for chain in chains(allocator, size, stream) for cost in runs(chain, size)]
    named = [one.in_use for one in found.obstacles if not one.segments]
    assert named[:1] == sorted(cheapest)[:1] or found.obstacles[-1].in_use <= min(cheapest)
    assert found.largest_free < size


@slow
@given(st.integers(0, 2**32), RULES)
def test_once_freed_the_request_fits(seed, rules):
    """Each of the obstacles, on an allocator of its own."""
    allocator, requested, stream = run_out(seed, rules)
    assume(requested)
    for number, obstacle in enumerate(shortage(allocator, requested, stream).obstacles):
        again, _, _ = run_out(seed, rules)
        assert shortage(again, requested, stream).obstacles[number] == obstacle
        assert sum(again.blocks[at].size for at in obstacle.blocks) == obstacle.in_use
        before, capacity = again.reserved, again.device.capacity
        for address in obstacle.blocks:
            again.free(address)
        assert again.malloc(requested, stream)
        assert again.device.in_use == again.reserved <= capacity
        if not obstacle.segments:
            assert again.reserved == before  # no new memory was needed


@slow
@given(st.integers(0, 2**32), RULES.filter(lambda rules: not rules.expandable_segments))
def test_no_choice_of_segments_to_empty_is_cheaper(seed, rules):
    """All choices are tried, each by really freeing its blocks."""
    allocator, requested, stream = run_out(seed, rules)
    assume(requested)
    every = [chain for region in allocator.regions() for chain in chains_of(allocator, region)]
    assume(len(every) <= 7)
    tried = [
        sum(block.size for chain in some for block in chain if block.is_busy)
        for count in range(len(every) + 1)
        for some in combinations(every, count)
        if fits_without(seed, rules, (requested, stream), some)
    ]
    found = shortage(allocator, requested, stream).obstacles
    assert bool(found) >= bool(tried)
    if tried:
        assert found[0].in_use <= min(tried)


def fits_without(seed, rules, asked, some) -> bool:
    again, _, _ = run_out(seed, rules)
    for chain in some:
        for block in chain:
            if block.is_busy:
                again.free(block.address)
    try:
        return bool(again.malloc(*asked))
    except OutOfMemoryError:
        return False


def test_emptying_other_segments_is_the_cheapest_at_times():
    found = []
    for seed in range(60):
        allocator, requested, stream = run_out(seed, AllocatorSettings())
        found += [one.segments for one in shortage(allocator, requested, stream).obstacles[:1]]
    assert sum(bool(segments) for segments in found) > 5
    assert sum(not segments for segments in found) > 5


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40 * MIB)), max_size=9),
    st.integers(1, 90),
)
def test_segments_are_chosen_like_by_trying_all(given_segments, wanted):
    segments = [(size * MIB, min(in_use, size * MIB)) for size, in_use in given_segments]
    chosen = cheapest_to_empty(segments, wanted * MIB)
    costs = [
        sum(in_use for _, in_use in some)
        for count in range(len(segments) + 1)
        for some in combinations(segments, count)
        if sum(size for size, _ in some) >= wanted * MIB
    ]
    assert (chosen is None) == (not costs)
    if chosen is not None:
        assert len(set(chosen)) == len(chosen)
        assert sum(segments[row][0] for row in chosen) >= wanted * MIB
        assert sum(segments[row][1] for row in chosen) == min(costs)


def test_a_card_full_of_segments_is_looked_through_in_a_moment():
    """Twenty times as many segments are not looked at so many times as closely."""
    choose = random.Random(0)
    segments = [
        (size, choose.randrange(size))
        for size in (choose.randrange(1, 2000) * 2 * MIB for _ in range(20_000))
    ]
    chosen = cheapest_to_empty(segments, 70 << 30)
    few = cost(lambda: cheapest_to_empty(segments[:1000], 70 << 30))
    assert cost(lambda: cheapest_to_empty(segments, 70 << 30)) < 10 * few
    assert sum(segments[row][0] for row in chosen) >= 70 << 30


@slow
@given(st.integers(0, 2**32))
def test_free_bytes_are_counted_once(seed):
    allocator, requested, stream = run_out(seed, AllocatorSettings())
    assume(requested)
    found = shortage(allocator, requested, stream)
    busy = sum(block.size for block in allocator.blocks.values())
    assert found.free + found.elsewhere + busy == allocator.reserved
