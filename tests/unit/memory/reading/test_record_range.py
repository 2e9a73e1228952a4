"""The last part of a record is a record: what lives when it begins was there before."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.unit.allocator.traces import FILES, path_of
from tests.unit.memory.step_copies import mlp
from workbench.allocator.simulator.gpus import CONTEXT_BYTES
from workbench.memory import memory
from workbench.memory.prediction.fake_run import run_copy
from workbench.memory.prediction.step_copy import copy_of_step
from workbench.memory.reading.fragmentation import fragmentation
from workbench.memory.reading.record_range import from_event
from workbench.memory.reading.recorded_program import recorded_settings
from workbench.memory.simulation.simulated_record import simulated
from workbench.records import MemoryRecord


def steps() -> MemoryRecord:
    return run_copy(copy_of_step(mlp(256), fake=True), title="digits")


def check_tail(record: MemoryRecord, event: int) -> MemoryRecord:
    found = from_event(record, event)
    np.testing.assert_array_equal(found.series(), record.series()[:, event:])
    np.testing.assert_array_equal(found.reserved(), record.reserved()[event:])
    np.testing.assert_array_equal(found.event_kind, record.event_kind[event:])
    assert found.peak_bytes == record.series().sum(axis=0)[event:].max()
    MemoryRecord.from_bytes(found.to_bytes())  # checks every pointer and order
    return found


@pytest.mark.parametrize("part", [0.0, 0.3, 0.5, 0.9])
def test_the_tail_of_two_steps_is_what_it_was(part):
    record = steps()
    check_tail(record, int(part * len(record.event_kind)))


def test_the_second_step_begins_with_the_optimizers_state():
    record = steps()
    start = record.phases[3].start
    found = check_tail(record, start)
    assert (found.phases[0].name, found.phases[0].start) == ("forward", 0)
    assert [phase.name for phase in found.phases] == ["forward", "backward", "optimizer"]
    assert found.event_time_us[0] == 0
    np.testing.assert_array_equal(
        np.diff(found.event_time_us), np.diff(record.event_time_us[start:])
    )
    first, second = (len(part.block_start) for part in (record, found))
    assert 0 < second < first


@pytest.mark.parametrize("words", ["", "expandable_segments:True"])
def test_segments_of_a_prediction_stay_with_their_blocks(words):
    record = simulated(steps(), words)
    found = check_tail(record, record.phases[3].start)
    segment = found.block_segment
    assert (segment >= 0).all()
    assert (found.block_address >= found.segment_address[segment]).all()
    parts = fragmentation(found, recorded_settings(found))
    np.testing.assert_array_equal(parts.sum(axis=0), found.reserved())


def test_what_was_refused_stays_with_what_stood_in_its_way():
    trace = memory(path_of(FILES[0])).record
    record = simulated(trace, gpu=CONTEXT_BYTES + trace.peak_bytes * 3 // 4)
    assert len(record.oom_event) == 1
    found = check_tail(record, len(record.event_kind) // 2)
    assert found.oom_bytes.tolist() == record.oom_bytes.tolist()
    named = {
        (int(r.block_bytes[b]), int(r.block_address[b]))
        for r in (record, found)
        for b in r.obstacle_block
    }
    assert len(named) == len(record.obstacle_block) == len(found.obstacle_block)


def test_a_block_that_waits_when_it_begins_waits_from_its_first_event_on():
    record = steps()
    event = len(record.event_kind) // 2
    waits = (record.block_start >= 0) & (record.block_start < event - 1)
    waits &= record.block_end > event
    assert waits.any()
    pending = np.where(waits, event - 1, -1).astype(np.int32)
    found = check_tail(dataclasses.replace(record, block_pending=pending), event)
    assert (found.block_pending == 0).sum() == waits.sum()
    assert found.block_pending.max() == 0


def test_nothing_is_left_behind_the_last_event():
    record = steps()
    found = check_tail(record, len(record.event_kind))
    assert len(found.event_kind) == 0
    assert found.peak_event == -1
