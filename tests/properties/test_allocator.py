"""The simulator against the plain rules: ten thousand operations at a time, under any settings."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.properties.allocator_runs import MIB, PRIVATE, Program, Run
from workbench.allocator.simulator.settings import NUM_DIVISIONS, AllocatorSettings

OPERATIONS = 10_000


@st.composite
def allocator_settings(draw):
    segment = draw(st.sampled_from([20, 12, 32])) * MIB
    split = draw(st.sampled_from([None, segment, 2 * segment, 3 * segment + MIB]))
    each = st.sampled_from([0, 1, 2, 4, 8, 16])
    divisions = draw(
        st.one_of(
            st.just((0,) * NUM_DIVISIONS),
            each.map(lambda number: (number,) * NUM_DIVISIONS),
            st.tuples(*[each] * NUM_DIVISIONS),
        )
    )
    return AllocatorSettings(
        max_split_size=split,
        max_non_split_rounding=segment + draw(st.sampled_from([0, MIB, 40 * MIB])),
        garbage_collection_threshold=draw(st.sampled_from([0.0, 0.3, 0.8])),
        expandable_segments=draw(st.booleans()),
        roundup_power2_divisions=divisions,
        large_segment_size=segment,
    )


bytes_or_none = st.one_of(st.none(), st.integers(60, 900).map(lambda number: number * MIB))
programs = st.builds(
    Program,
    seed=st.integers(0, 2**32),
    settings=allocator_settings(),
    capacity=bytes_or_none,
    allowed=bytes_or_none,
    num_streams=st.integers(1, 4),
    most_live=st.sampled_from([5, 60, 400]),
    has_private=st.booleans(),
)
slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@settings(slow, max_examples=20)
@given(programs)
def test_ten_thousand_operations(program):
    assert Run(program).difference(OPERATIONS, check_every=25) == ""


@pytest.mark.fuzz
@settings(slow, max_examples=400)
@given(programs)
def test_many_times_ten_thousand_operations(program):
    assert Run(program).difference(OPERATIONS, check_every=25) == ""


class Machine(RuleBasedStateMachine):
    """The same with operations that Hypothesis chooses, and shortens where something differs."""

    @initialize(program=programs)
    def begin(self, program):
        self.run = Run(program)

    @rule(seed=st.integers(0, 2**32))
    def malloc(self, seed):
        self.run.choose.seed(seed)
        self.run.malloc()

    @precondition(lambda self: self.run.live)
    @rule(seed=st.integers(0, 2**32))
    def free(self, seed):
        self.run.choose.seed(seed)
        self.run.free()

    @precondition(lambda self: self.run.live)
    @rule(number=st.integers(0, 2**16), stream=st.integers(0, 4))
    def record_stream(self, number, stream):
        live = self.run.live
        self.run.both("record_stream", live[number % len(live)], stream)

    @precondition(lambda self: self.run.waiting)
    @rule(number=st.integers(0, 2**16))
    def complete(self, number):
        waiting = self.run.waiting
        self.run.both("complete", waiting.pop(number % len(waiting)))

    @rule()
    def empty_cache(self):
        self.run.both("empty_cache")
        self.run.waiting.clear()

    @precondition(lambda self: PRIVATE in self.run.fast.pools)
    @rule()
    def switch_pool(self):
        self.run.switch_pool()

    @invariant()
    def both_are_alike(self):
        if hasattr(self, "run"):
            assert self.run.compare(whole=True) == ""


TestMachine = Machine.TestCase
TestMachine.settings = settings(slow, max_examples=25, stateful_step_count=40)
