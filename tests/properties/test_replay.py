"""Traces that no GPU wrote: made by the plain rules, replayed by the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.properties.allocator_runs import MIB, Program
from tests.properties.recording import record, record_with_start
from workbench.allocator.replay.replay import replay
from workbench.allocator.replay.start_state import start_state
from workbench.allocator.simulator.rounding import round_size
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import (
    ALLOC,
    FREE_COMPLETED,
    OOM,
    SEGMENT_FREE,
    SEGMENT_UNMAP,
)

slow = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
rounding = st.sampled_from([0, 4]).map(lambda number: (number,) * 16)
seeds = st.integers(0, 2**32)
capacities = st.integers(200, 900).map(lambda number: number * MIB)
default = st.builds(
    Program,
    seed=seeds,
    settings=st.builds(AllocatorSettings, roundup_power2_divisions=rounding),
    capacity=st.one_of(st.none(), capacities),
    num_streams=st.integers(1, 3),
    most_live=st.sampled_from([30, 120]),
    has_private=st.booleans(),
)
EXPANDABLE = AllocatorSettings(expandable_segments=True)
EXPANDABLE_AND_UNSPLIT = AllocatorSettings(expandable_segments=True, max_split_size=40 * MIB)
one_stream = st.builds(
    Program,
    seed=seeds,
    settings=st.builds(
        AllocatorSettings,
        expandable_segments=st.booleans(),
        max_split_size=st.sampled_from([None, 40 * MIB]),
    ),
    capacity=capacities,
    has_private=st.booleans(),
)


@slow
@given(default)
def test_a_trace_from_the_beginning(program):
    certificate = replay(record(program, 0, 500)).certificate
    assert certificate.exact, certificate


def midway(settings, seed):
    """A replay of a trace that starts in the middle of a program's life."""
    program = Program(seed, settings, capacity=(300 + seed % 7 * 100) * MIB, most_live=60)
    return replay(record(program, 400, 400))


def test_traces_that_start_mid_life():
    """Nearly all are exact; where one is not, a block's size could only be guessed."""
    found = [midway(AllocatorSettings(), seed) for seed in range(30)]
    assert all(one.certificate.exact or one.start.num_guessed for one in found)
    assert sum(one.certificate.exact for one in found) >= 27
    assert sum(one.certificate.num_inferred for one in found) > 100
    assert not any(one.start.num_lost for one in found)


def sizes_before(settings: AllocatorSettings, seed: int) -> list[tuple[int, int, int]]:
    """(requested, inferred, true) bytes of every block that was there before a trace."""
    program = Program(seed, settings, capacity=(300 + seed % 7 * 100) * MIB, most_live=60)
    snapshot, truth = record_with_start(program, 400, 400)
    state = start_state(snapshot, settings)
    blocks = [block for segment in state.segments for block in segment.blocks]
    assert {block.address for block in blocks} == truth.keys()
    return [(block.requested, block.size, truth[block.address]) for block in blocks]


def test_a_block_that_is_never_split_has_its_segment_to_itself():
    settings = AllocatorSettings(max_split_size=20 * MIB, max_non_split_rounding=60 * MIB)
    found = [row for seed in range(40) for row in sizes_before(settings, seed)]
    large = [row for row in found if row[0] >= 20 * MIB]
    assert [inferred for _, inferred, _ in large] == [true for _, _, true in large]
    assert sum(true > requested + 3 * MIB for requested, _, true in large) > 10
    assert sum(inferred == true for _, inferred, true in found) >= 0.99 * len(found)


@pytest.mark.parametrize("page", [20, 32])
def test_expandable_segments_mid_life(page):
    settings = AllocatorSettings(
        expandable_segments=True,
        large_segment_size=page * MIB,
        max_non_split_rounding=page * MIB,
    )
    found = [midway(settings, seed).certificate for seed in range(20)]
    assert sum(one.exact for one in found) >= 18, [str(one) for one in found if not one.exact]


def test_pages_given_back_in_another_order_are_told():
    swapped = 0
    for seed in range(30):
        program = Program(seed, AllocatorSettings(expandable_segments=True), capacity=250 * MIB)
        snapshot = record(program, 0, 500)
        rows = np.flatnonzero(snapshot.action == SEGMENT_UNMAP)
        pairs = [row for row in rows[:-1] if row + 1 in rows]
        for row in pairs[:1]:
            address, size = snapshot.address.copy(), snapshot.size.copy()
            address[[row, row + 1]] = address[[row + 1, row]]
            size[[row, row + 1]] = size[[row + 1, row]]
            assert not replay(replace(snapshot, address=address, size=size)).certificate.exact
            swapped += 1
    assert swapped >= 3


@slow
@given(one_stream)
@example(Program(236, EXPANDABLE_AND_UNSPLIT, capacity=226 * MIB, has_private=True))
@example(Program(49941, EXPANDABLE, capacity=200 * MIB, has_private=True))
def test_other_settings_on_one_stream(program):
    certificate = replay(record(program, 0, 500)).certificate
    assert certificate.exact, certificate


def test_behind_a_difference_sizes_are_rounded_as_the_settings_say():
    divided = AllocatorSettings(roundup_power2_divisions=(4,) * 16)
    snapshot = record(Program(5, divided), 0, 300)
    allocated = np.flatnonzero(snapshot.action == ALLOC)
    address = snapshot.address.copy()
    address[allocated[3]] += 512
    found = replay(replace(snapshot, address=address))
    assert found.certificate.addresses.alike == 3
    asked, sizes = snapshot.size[allocated[3:]].tolist(), found.sizes[allocated[3:]].tolist()
    assert sizes == [round_size(size, divided) for size in asked]
    assert sizes != [round_size(size, AllocatorSettings()) for size in asked]


@pytest.mark.parametrize("action", [FREE_COMPLETED, SEGMENT_FREE, SEGMENT_UNMAP, OOM])
def test_the_traces_hold_what_is_hard(action):
    """So that the tests above do not pass for want of cases."""
    found = 0
    for seed in range(6):
        expandable = AllocatorSettings(expandable_segments=action == SEGMENT_UNMAP)
        program = Program(seed, expandable, capacity=250 * MIB, num_streams=2)
        found += int((record(program, 0, 500).action == action).sum())
    assert found > 10
