"""Traces that no GPU wrote: made by the plain rules, replayed by the simulator."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.allocator_runs import MIB, Program
from tests.properties.recording import record
from workbench.allocator.replay import replay
from workbench.allocator.settings import AllocatorSettings
from workbench.allocator.snapshot import FREE_COMPLETED, OOM, SEGMENT_FREE, SEGMENT_UNMAP

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


@slow
@given(default)
def test_a_trace_that_starts_mid_life(program):
    """Exact, or else a block's size could only be guessed, and the replay says so."""
    found = replay(record(program, 400, 400))
    assert found.certificate.exact or found.start.num_guessed, found.certificate
    assert found.start.num_lost == 0


@slow
@given(one_stream)
def test_other_settings_on_one_stream(program):
    certificate = replay(record(program, 0, 500)).certificate
    assert certificate.exact, certificate


@pytest.mark.parametrize("action", [FREE_COMPLETED, SEGMENT_FREE, SEGMENT_UNMAP, OOM])
def test_the_traces_hold_what_is_hard(action):
    """So that the tests above do not pass for want of cases."""
    found = 0
    for seed in range(6):
        expandable = AllocatorSettings(expandable_segments=action == SEGMENT_UNMAP)
        program = Program(seed, expandable, capacity=250 * MIB, num_streams=2)
        found += int((record(program, 0, 500).action == action).sum())
    assert found > 10
