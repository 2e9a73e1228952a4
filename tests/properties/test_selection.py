"""A stretch of a recording is that stretch of the whole, position by position, block by block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.allocator_runs import MIB, Program
from tests.properties.recording import record
from tests.unit.allocator.traces import FILES, path_of
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.memory import open_file
from workbench.memory.files.replayed_snapshot import replayed_record
from workbench.memory.files.selection import event_range, overview
from workbench.memory.reading.fragmentation import fragmentation
from workbench.records import MemoryRecord, RecordError, read_record

slow = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
programs = st.builds(
    Program,
    seed=st.integers(0, 2**32),
    settings=st.builds(AllocatorSettings, expandable_segments=st.booleans()),
    capacity=st.integers(200, 900).map(lambda number: number * MIB),
    num_streams=st.integers(1, 3),
    has_private=st.booleans(),
)
shares = st.tuples(st.floats(0, 1), st.floats(0, 1))


def chosen(whole: MemoryRecord, between: tuple[float, float]) -> tuple[int, int]:
    num_events = len(whole.event_time_us)
    first, last = (int(share * num_events) for share in sorted(between))
    first = min(first, num_events - 1)
    return first, max(last, first + 1)


def live(record: MemoryRecord, position: int) -> list[tuple[int, int, int]]:
    """(address, bytes, segment's address) of everything alive after ``position`` events."""
    there = (record.block_start < position) & (
        (record.block_end < 0) | (record.block_end >= position)
    )
    segments = np.append(record.segment_address, -1)[record.block_segment[there]]
    rows = zip(record.block_address[there], record.block_bytes[there], segments, strict=True)
    return sorted((int(a), int(b), int(c)) for a, b, c in rows)


def assert_is_stretch(whole: MemoryRecord, start: int, end: int) -> None:
    part = event_range(whole, start, end)
    read_record(part.to_bytes())  # every rule of its columns holds
    positions = slice(start, end + 1)
    np.testing.assert_array_equal(part.series(), whole.series()[:, positions])
    np.testing.assert_array_equal(part.reserved(), whole.reserved()[positions])
    np.testing.assert_array_equal(part.event_kind, whole.event_kind[start:end])
    for position in (start, (start + end) // 2, end):
        assert live(part, position - start) == live(whole, position)
    total = part.series().sum(axis=0)
    assert part.peak_bytes == total.max() == total[part.peak_event + 1]
    refused = (whole.oom_event >= start) & (whole.oom_event < end)
    np.testing.assert_array_equal(part.oom_bytes, whole.oom_bytes[refused])


@slow
@given(programs, st.sampled_from([0, 150]), shares)
def test_a_stretch_of_what_the_plain_rules_recorded(program, before, between):
    whole = replayed_record(record(program, before, 250), title="made")
    assert_is_stretch(whole, *chosen(whole, between))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("between", [(0.0, 0.3), (0.4, 0.6), (0.9, 1.0)])
def test_a_stretch_of_a_real_trace(name, between):
    whole = open_file(path_of(name))
    start, end = chosen(whole, between)
    assert_is_stretch(whole, start, end)
    # one stream, nothing waits: what reserved memory is made of is the same, too
    np.testing.assert_array_equal(
        fragmentation(event_range(whole, start, end)), fragmentation(whole)[:, start : end + 1]
    )


@slow
@given(programs, shares)
def test_from_afar_no_peak_is_lost(program, between):
    whole = replayed_record(record(program, 50, 1500), title="made")
    seen = overview(whole)
    total = whole.series().sum(axis=0)
    assert max(seen["bytes"]) == total.max() == seen["peak_bytes"]
    assert len(seen["bytes"]) == len(seen["position"]) == len(seen["time_us"]) <= 400
    ends = [*seen["position"][1:], len(total)]
    for at, until, most in zip(seen["position"], ends, seen["bytes"], strict=True):
        assert total[at:until].max() == most
    start, end = seen["proposed"]
    assert 0 <= start <= max(0, whole.peak_event) < end <= seen["num_events"]


def test_what_waits_when_a_stretch_begins_waits_from_its_first_event_on():
    whole = replayed_record(record(Program(7, num_streams=3), 0, 600), title="made")
    waits = np.flatnonzero((whole.block_pending >= 0) & (whole.block_end > whole.block_pending + 1))
    assert len(waits)
    row = int(waits[0])
    start, end = int(whole.block_pending[row]) + 1, int(whole.block_end[row]) + 1
    part = event_range(whole, start, end)
    same = part.block_address == whole.block_address[row]
    assert 0 in part.block_pending[same]


@pytest.mark.parametrize("between", [(-1, 5), (5, 5), (9, 3), (0, 10**9)])
def test_what_is_no_stretch_is_said(between):
    whole = replayed_record(record(Program(1), 0, 50), title="made")
    with pytest.raises(RecordError, match="were requested; the recording has"):
        event_range(whole, *between)


def test_a_stretch_says_what_it_is_of():
    whole = replayed_record(record(Program(1), 0, 300), title="made")
    part = event_range(whole, 10, 20)
    assert part.notes[0].startswith(f"Events 10 to 20 of {len(whole.event_kind):,}")
    assert event_range(whole, 0, len(whole.event_kind)) is whole
