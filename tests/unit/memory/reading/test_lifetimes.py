"""An allocator's events become lives whose totals agree with its own segments."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cost import cost
from workbench.allocator.snapshot.snapshot import (
    ACTIONS,
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    STATES,
    Snapshot,
)
from workbench.memory.files.from_snapshot import record_of_snapshot
from workbench.memory.reading.lifetimes import lifetimes_of
from workbench.records import EVENT_KINDS, MemoryRecord

BASE = 0x7F0000000000
MIB = 1 << 20


def snapshot(trace, segments=(), blocks=(), pools=()) -> Snapshot:
    """Of ``(action, offset, size)`` entries, ``(offset, size)`` segments and ``(segment, offset,
    size, requested, state)`` blocks; one entry a microsecond."""
    trace = np.array([(ACTIONS.index(a), o, s) for a, o, s in trace], dtype=np.int64).reshape(-1, 3)
    rows = [(g, BASE + o, s, r, STATES.index(state)) for g, o, s, r, state in blocks]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    ground = np.array(segments, dtype=np.int64).reshape(-1, 2)
    none, bare = np.full(len(trace), -1), np.zeros(len(ground), dtype=np.int64)
    return Snapshot(
        device=0, other_devices=(), settings={}, annotations=(), num_unknown=0,
        action=trace[:, 0].astype(np.uint8), address=BASE + trace[:, 1], size=trace[:, 2],
        stream=np.zeros(len(trace), dtype=np.int64), time_us=np.arange(len(trace)) + 1,
        trace_pool=none, trace_stack=none,
        segment_address=BASE + ground[:, 0], segment_bytes=ground[:, 1], segment_stream=bare,
        segment_is_large=bare, segment_is_expandable=bare, segment_pool=bare - 1,
        segment_stack=bare - 1,
        block_segment=table[:, 0], block_address=table[:, 1], block_bytes=table[:, 2],
        block_requested=table[:, 3], block_state=table[:, 4], block_stack=table[:, 0] * 0 - 1,
        pools=pools, frames=(), stack_start=np.zeros(1, dtype=np.int64),
        stack_frame=np.zeros(0, dtype=np.int32),
    )  # fmt: skip


def record(*args, **given) -> MemoryRecord:
    return record_of_snapshot(snapshot(*args), title="trace", **given)


TWO_MIB = [
    ("alloc", 1024, 600),
    ("free_requested", 1024, 600),
    ("free_completed", 1024, 600),
    ("segment_alloc", 16 * MIB, 20 * MIB),
    ("alloc", 1024, 2000),
    ("segment_free", 16 * MIB, 20 * MIB),
]
HELD = [
    (0, 0, 1024, 1000, "allocated"),
    (0, 1024, 2560, 2000, "allocated"),
    (0, 3584, 2 * MIB - 3584, 600, "free"),
]


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({}, 1_200_128),
        ({"roundup_power2_divisions": {"1": 4}}, 1_310_720),
        (
            {"roundup_power2_divisions": {"1": 3}},
            1_200_128,
        ),  # 3 is no power of two: none of torch's
    ],
)
def test_without_a_replay_requests_are_rounded_as_the_file_says(settings, size):
    given = snapshot([("alloc", 0, 1_200_000), ("free_completed", 0, 1_200_000)])
    object.__setattr__(given, "settings", settings)
    assert lifetimes_of(given).num_bytes.tolist() == [size]


def test_blocks_and_their_lives():
    found = record(TWO_MIB, [(0, 2 * MIB)], HELD)
    rows = zip(
        (found.block_address - BASE).tolist(), found.block_bytes.tolist(),
        found.block_requested.tolist(), found.block_start.tolist(), found.block_end.tolist(),
        strict=True,
    )  # fmt: skip
    assert list(rows) == [
        (0, 1024, 1000, -1, -1),
        (1024, 1024, 600, 0, 1),
        (1024, 2560, 2000, 3, -1),
    ]
    assert (found.block_pending == -1).all()
    kinds = [EVENT_KINDS[kind] for kind in found.event_kind]
    assert kinds == ["alloc", "free", "segment_alloc", "alloc", "segment_free"]
    assert found.reserved().tolist() == [n * MIB for n in (2, 2, 2, 22, 22, 2)]


def test_a_free_that_waits_for_a_stream_is_pending_until_it_is_completed():
    found = record([("alloc", 0, 512), ("free_requested", 0, 512), ("alloc", 512, 512),
                    ("free_completed", 0, 512), ("free_requested", 512, 512)])  # fmt: skip
    assert found.block_pending.tolist() == [1, 4]
    assert found.block_end.tolist() == [3, -1]
    assert len(found.event_kind) == 5


def test_a_block_freed_but_never_allocated_was_there_before():
    found = record([("free_completed", 0, 700)])
    assert (found.block_start.tolist(), found.block_end.tolist()) == ([-1], [0])
    assert found.block_bytes.tolist() == [1024]


def test_an_address_allocated_twice_ends_the_first_block():
    found = record([("alloc", 0, 512), ("alloc", 0, 1024), ("free_completed", 0, 1024)])
    assert (found.block_start.tolist(), found.block_end.tolist()) == ([0, 1], [1, 2])


def test_a_replay_knows_what_blocks_occupied():
    trace = [("alloc", 0, 600), ("free_completed", 0, 600)]
    assert record(trace, sizes=np.array([MIB, MIB])).block_bytes.tolist() == [MIB]


def test_an_out_of_memory_is_kept_with_what_the_device_had_left():
    found = record([("alloc", 0, 512), ("oom", 5 * MIB - BASE, 20 * MIB)])
    assert found.oom_event.tolist() == [1]
    assert (found.oom_bytes.tolist(), found.oom_free.tolist()) == ([20 * MIB], [5 * MIB])


def test_what_an_unmap_cuts_off_an_expandable_segment_lived_until_then():
    grown = [("segment_map", 0, 40 * MIB), ("segment_unmap", 20 * MIB, 20 * MIB)]
    found = record(grown, [(0, 20 * MIB)])
    names = ("start", "end", "address", "bytes")
    columns = [getattr(found, f"segment_{name}").tolist() for name in names]
    columns[2] = [address - BASE for address in columns[2]]
    assert list(zip(*columns, strict=True)) == [(0, -1, 0, 20 * MIB), (0, 1, 20 * MIB, 20 * MIB)]


def test_a_block_is_in_the_segment_of_its_time_however_many_lay_there():
    trace = [("segment_alloc", 0, 20 * MIB), ("alloc", 0, 12 * MIB), ("free_completed", 0, MIB),
             ("segment_free", 0, 20 * MIB), ("segment_alloc", 4 * MIB, 2 * MIB),
             ("segment_free", 4 * MIB, 2 * MIB), ("segment_alloc", 0, 24 * MIB),
             ("alloc", 5 * MIB, 12 * MIB)]  # fmt: skip
    found = record(trace, [(0, 24 * MIB)], [(0, 5 * MIB, 12 * MIB, 12 * MIB, "allocated")])
    starts = found.segment_start[found.block_segment]
    assert starts.tolist() == [0, 6]


def test_private_pools_are_numbered_from_one():
    given = snapshot([], [(0, MIB), (MIB, MIB)], pools=((0, 0), (1, 0)))
    object.__setattr__(given, "segment_pool", np.array([0, 1]))
    assert record_of_snapshot(given, title="t").segment_private.tolist() == [0, 1]


@pytest.mark.parametrize("num_events", [0, 1, 1_000_000])
def test_a_million_events_take_no_longer_than_reading_them_a_few_times(num_events: int):
    """In Python, one number after the other."""
    rng = np.random.default_rng(0)
    address = BASE + 512 * rng.integers(0, 50_000, num_events)
    order = np.argsort(address, kind="stable")
    nth = np.arange(num_events) - np.searchsorted(address[order], address[order])
    cycle = np.empty(num_events, dtype=np.uint8)
    cycle[order] = np.array([ALLOC, FREE_REQUESTED, FREE_COMPLETED])[nth % 3]
    given = snapshot([], [(0, 32 * MIB)])
    columns = {
        "action": cycle, "address": address, "size": rng.integers(1, 512, num_events),
        "stream": address * 0, "time_us": np.arange(num_events), "trace_pool": cycle * 0 - 1,
        "trace_stack": np.full(num_events, -1),
    }  # fmt: skip
    for name, column in columns.items():
        object.__setattr__(given, name, column)
    found = record_of_snapshot(given, title="long")
    if num_events > 1:
        lists = [column.tolist() for column in columns.values()]
        reading = cost(lambda: sum(number for numbers in lists for number in numbers))
        assert cost(lambda: record_of_snapshot(given, title="long")) < 15 * reading
    allocs = int((cycle == ALLOC).sum())
    assert len(found.block_start) == allocs
    assert int((found.block_end >= 0).sum()) == int((cycle == FREE_COMPLETED).sum())
    assert (found.block_segment[:allocs] == 0).all()
    assert lifetimes_of(given).kept.sum() == len(found.event_kind)
