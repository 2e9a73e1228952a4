"""A program on a simulated GPU, as a record: it adds up, and it is what the questions answer."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.allocator.traces import FILES, path_of
from workbench.allocator.simulator.gpus import CONTEXT_BYTES
from workbench.allocator.simulator.settings import SettingsError
from workbench.memory import memory
from workbench.memory.reading.fragmentation import fragmentation
from workbench.memory.reading.recorded_program import lifetimes_of_record, recorded_settings
from workbench.memory.recording.record_builder import record_of
from workbench.memory.recording.storage_lifetimes import Block
from workbench.memory.simulation.simulated_record import Claim, simulated
from workbench.memory.simulation.what_if import what_if
from workbench.records import CATEGORIES, MemoryRecord, Phase

MIB = 2**20
SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:21",
    "roundup_power2_divisions:4",
    "large_segment_size_mb:11",
    "garbage_collection_threshold:0.3",
    "expandable_segments:True,garbage_collection_threshold:0.5",
)


def check(found: MemoryRecord) -> None:
    """What must hold of any record of an allocator."""
    parts = fragmentation(found, recorded_settings(found))
    assert (parts >= 0).all()
    np.testing.assert_array_equal(parts.sum(axis=0), found.reserved())
    assert found.peak_bytes == found.series().sum(axis=0).max()
    assert (found.block_segment >= 0).all()
    segment = found.block_segment
    assert (found.block_address >= found.segment_address[segment]).all()
    MemoryRecord.from_bytes(found.to_bytes())  # checks every pointer and order


def assert_apart(found: MemoryRecord, event: int) -> None:
    """No two blocks share memory after ``event``, and each lies in a segment that is there."""
    end = found.block_end
    live = np.flatnonzero((found.block_start <= event) & ((end < 0) | (end > event)))
    live = live[np.argsort(found.block_address[live])]
    ends = found.block_address[live] + found.block_bytes[live]
    assert (ends[:-1] <= found.block_address[live][1:]).all()
    rows = found.block_segment[live]
    assert (found.segment_start[rows] <= event).all()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("words", SETTINGS[:5])
@pytest.mark.parametrize("card", [None, "RTX 4090"])
def test_a_real_trace_adds_up_under_other_settings(name, words, card):
    record = memory(path_of(name)).record
    found, answer = simulated(record, words, card), what_if(record, words, card)
    check(found)
    assert found.reserved().max() == answer.outcome.peak_reserved == found.peak_interval[1]
    assert found.peak_bytes == answer.outcome.peak_allocated
    assert bool(len(found.oom_event)) == (not answer.outcome.fits)
    assert found.is_predicted
    assert recorded_settings(found) == answer.settings


@pytest.mark.parametrize("name", FILES[1:])  # the first was recorded without its early segments
def test_as_recorded_every_event_comes_out_alike(name):
    """But for addresses of new segments: the driver's, by which ties between free blocks end."""
    record = memory(path_of(name)).record
    found = simulated(record)
    np.testing.assert_array_equal(found.event_kind, record.event_kind)
    np.testing.assert_array_equal(found.reserved(), record.reserved())
    np.testing.assert_array_equal(found.series(), record.series())
    np.testing.assert_array_equal(found.block_bytes, record.block_bytes)
    np.testing.assert_array_equal(fragmentation(found)[:4], fragmentation(record)[:4])


def made(seed: int, *, num_blocks: int, num_streams: int, waits: bool) -> MemoryRecord:
    """A made-up recording, whose blocks come and go in any order."""
    choose = random.Random(seed)  # a fixed sequence, nothing secret
    edges = (1, 511, 513, MIB, MIB + 1, 2 * MIB, 10 * MIB, 21 * MIB)
    blocks, live, tick, pending = [], [], 0, {}
    for _ in range(num_blocks):
        size = choose.choice(edges) if choose.random() < 0.4 else int(2 ** choose.uniform(0, 25))
        block = Block(size, "cpu", 0)
        block.category, block.op = choose.choice(CATEGORIES), "aten.mm"
        if choose.random() > 0.1:
            block.start, tick = tick, tick + 1
        blocks.append(block)
        live.append(block)
        while live and choose.random() < 0.45:
            gone = live.pop(choose.randrange(len(live)))
            if waits and choose.random() < 0.2:
                pending[id(gone)], tick = tick, tick + 1
            gone.end, tick = tick, tick + 1
    record = record_of(
        blocks, [], started_ns=0, notes=(), title="made", experiment=None, step=None,
        device="cpu", basis="Made.", batch_size=4,
    ) if not pending else None  # fmt: skip
    if record is None:
        record = _with_requests(blocks, pending, tick)
    streams = [choose.randrange(num_streams) for _ in blocks]
    half = len(record.event_kind) // 2
    phases = (Phase(name="forward", start=0, end=half),) if half else ()
    return dataclasses.replace(
        record, block_stream=np.array(streams, dtype=np.int64), phases=phases
    )


def _with_requests(blocks, pending, num_events):
    """The same where some blocks wait for a stream before they end: requests are events too."""
    wait = [pending.get(id(block), -1) for block in blocks]
    shadows = []
    for block in blocks:  # an event of its own, so that events are numbered without gaps
        if id(block) in pending:
            shadow = Block(0, "cpu", 0)
            shadow.start = pending[id(block)]
            shadows.append(shadow)
    record = record_of(
        [*blocks, *shadows], [], started_ns=0, notes=(), title="made", experiment=None, step=None,
        device="cpu", basis="Made.", batch_size=4,
    )  # fmt: skip
    assert len(record.event_kind) == num_events
    per_block = {
        field.name: getattr(record, field.name)[: len(blocks)]
        for field in dataclasses.fields(record)
        if field.name.startswith("block_")
    }
    per_block["block_pending"] = np.array(wait, dtype=np.int32)
    return dataclasses.replace(record, **per_block)


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    num_blocks=st.integers(0, 120),
    num_streams=st.integers(1, 3),
    waits=st.booleans(),
    words=st.sampled_from(SETTINGS),
    room=st.one_of(st.none(), st.integers(4, 300)),
)
@example(  # a block that was there before lies across two mapped pages
    seed=0, num_blocks=17, num_streams=1, waits=False, words="expandable_segments:True", room=None
)
def test_any_program_adds_up_and_is_what_the_answer_says(
    seed, num_blocks, num_streams, waits, words, room
):
    record = made(seed, num_blocks=num_blocks, num_streams=num_streams, waits=waits)
    if room is None and "garbage" in words:
        room = 200
    card = None if room is None else CONTEXT_BYTES + room * MIB
    found, answer = simulated(record, words, card), what_if(record, words, card)
    check(found)
    for share in (0.2, 0.6, 1.0):
        assert_apart(found, int(share * (len(found.event_kind) - 1)))
    peak = int(found.reserved().max())
    if answer.outcome.num_retries and "expandable" in words:
        assert peak >= answer.outcome.peak_reserved  # pages mapped before the memory ran short
    else:
        assert peak == answer.outcome.peak_reserved
    assert bool(len(found.oom_event)) == (not answer.outcome.fits)
    assert len(found.obstacle_block) == len(answer.outcome.in_the_way)
    if answer.outcome.fits:
        assert len(found.block_bytes) == len(record.block_bytes)
        np.testing.assert_array_equal(found.block_category, record.block_category)
        np.testing.assert_array_equal(found.block_requested, record.block_requested)
        again = what_if(found, words, card)
        assert again.outcome.fits
        if found.block_pending.max(initial=-1) < 0 and not answer.outcome.num_retries:
            assert again.outcome.peak_reserved == peak


def test_a_request_that_does_not_fit_ends_the_record_and_names_what_is_in_the_way():
    rows = [(100 * MIB, 0, -1), (40 * MIB, 1, 3), (60 * MIB, 2, -1), (120 * MIB, 4, -1)]
    blocks = []
    for size, start, end in rows:
        block = Block(size, "cpu", 0)
        block.start, block.end, block.category = start, end, "activations"
        blocks.append(block)
    phases = [Phase(name="forward", start=0, end=2), Phase(name="backward", start=2, end=5)]
    record = record_of(
        blocks, phases, started_ns=0, notes=(), title="made", experiment=None, step=None,
        device="cpu", basis="Measured: nothing.", batch_size=-1,
    )  # fmt: skip
    found = simulated(record, gpu=CONTEXT_BYTES + 200 * MIB)
    check(found)
    assert found.oom_event.tolist() == [len(found.event_kind) - 1]
    assert found.oom_bytes.tolist() == [120 * MIB]
    assert found.oom_free.tolist() == [40 * MIB]  # what was cached went back first
    assert len(found.block_bytes) == 3
    assert [phase.name for phase in found.phases] == ["forward", "backward"]
    assert found.phases[-1].end == len(found.event_kind)
    assert found.card_bytes == 200 * MIB
    assert "measured: nothing" in found.basis


def test_what_was_there_does_not_fit_either():
    block = Block(300 * MIB, "cpu", 0)
    record = record_of(
        [block], [], started_ns=0, notes=(), title="made", experiment=None, step=None,
        device="cpu", basis="Made.", batch_size=-1,
    )  # fmt: skip
    found = simulated(record, gpu=CONTEXT_BYTES + 100 * MIB)
    check(found)
    assert found.oom_event.tolist() == [0]
    assert not len(found.block_bytes)


def test_other_sizes_can_be_asked_for():
    record = made(3, num_blocks=40, num_streams=1, waits=False)
    lives = lifetimes_of_record(record, with_refused=True)
    larger = dataclasses.replace(lives, requested=lives.requested * 3)
    claim = Claim(reasons=("three times the batch",), interval=(1, 2**40), batch_size=12)
    found = simulated(record, lifetimes=larger, claim=claim)
    check(found)
    np.testing.assert_array_equal(found.block_requested, 3 * record.block_requested)
    assert (found.batch_size, found.peak_interval) == (12, (1, 2**40))
    assert found.reasons == claim.reasons


def test_collecting_garbage_needs_a_gpu():
    record = made(3, num_blocks=10, num_streams=1, waits=False)
    with pytest.raises(SettingsError, match="acts only on a GPU with a limit"):
        simulated(record, "garbage_collection_threshold:0.5")
