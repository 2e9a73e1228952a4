"""Requests that a trace refuses: what its record says stood in the way, taken away for real."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.properties.allocator_runs import MIB, Program
from tests.properties.recording import record
from workbench.allocator.replay.replay import MOST_SHORTAGES, replay
from workbench.allocator.simulator.device import Device
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import OOM
from workbench.memory.files.replayed_snapshot import replayed_record

slow = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
RULES = {
    "default": AllocatorSettings(),
    "expandable": AllocatorSettings(expandable_segments=True),
    "max_split": AllocatorSettings(max_split_size=24 * MIB),
    "divisions": AllocatorSettings(roundup_power2_divisions=(4,) * 16),
}
programs = st.builds(
    Program,
    seed=st.integers(0, 2**32),
    settings=st.sampled_from(list(RULES.values())),
    capacity=st.integers(120, 400).map(lambda number: number * MIB),
    has_private=st.booleans(),
)


def served_once_freed(program: Program) -> list[str]:
    """How each refused request of a program's trace is served once the record's blocks are gone."""
    snapshot = record(program, 0, 400)
    assert replay(snapshot).certificate.exact
    found = replayed_record(snapshot, title="refused")
    kinds = []
    for number, entry in enumerate(np.flatnonzero(snapshot.action == OOM).tolist()):
        rows = found.obstacle_block[found.obstacle_oom == number]
        if not len(rows):
            continue
        kinds.append(freed(program, snapshot, entry, found.block_address[rows].tolist()))
        event = found.oom_event[number]
        lives = (found.block_start[rows] < event) & (found.block_end[rows] != event)
        lives &= (found.block_end[rows] < 0) | (found.block_end[rows] > event)
        assert lives.all()
        assert found.oom_free[number] <= program.capacity
        assert 0 <= found.oom_largest[number] < found.oom_bytes[number]
    return kinds


def freed(program: Program, snapshot, entry: int, addresses: list[int]) -> str:
    """The trace up to a refusal, and then the same request without these blocks, on a real card."""
    allocator = replay(snapshot, until=entry + 1).allocator
    highest = max(block.address + block.size for block in allocator.blocks.values())
    allocator.device = Device(program.capacity, above=highest + 2**45)
    allocator.device.in_use = before = allocator.reserved
    for address in addresses:
        allocator.free(address)
    private = snapshot.pools[snapshot.trace_pool[entry]][1]
    stream = int(snapshot.stream[entry])
    assert allocator.malloc(int(snapshot.size[entry]), stream, private)
    assert allocator.reserved == allocator.device.in_use <= program.capacity
    return "a run" if allocator.reserved == before else "new memory"


@slow
@given(programs)
@example(Program(0, RULES["expandable"], capacity=144 * MIB, has_private=True))
def test_once_its_obstacles_are_freed_a_refused_request_is_served(program):
    served_once_freed(program)


@pytest.mark.parametrize("name", RULES)
def test_there_are_obstacles_of_both_kinds(name):
    """So that the test above does not pass for want of cases."""
    found = Counter()
    for seed in range(12):
        found.update(served_once_freed(Program(seed, RULES[name], capacity=180 * MIB)))
    assert found["a run"] > 2, found
    assert found["new memory"] > 2, found


def test_a_trace_full_of_refusals_is_explained_at_its_end():
    snapshot = record(Program(3, capacity=60 * MIB, most_live=400), 0, 1500)
    refused = np.flatnonzero(snapshot.action == OOM)
    assert len(refused) > MOST_SHORTAGES
    found = replayed_record(snapshot, title="refused")
    assert (found.oom_largest[:-MOST_SHORTAGES] == -1).all()
    assert (found.oom_largest[-MOST_SHORTAGES:] >= 0).all()
    assert set(found.obstacle_oom) <= set(range(len(refused) - MOST_SHORTAGES, len(refused)))
