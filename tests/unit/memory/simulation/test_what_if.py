"""The recorded program under other settings and on other GPUs."""

from __future__ import annotations

import pytest
import torch

from tests.unit.allocator.traces import FILES, path_of
from workbench.allocator.simulator.gpus import CONTEXT_BYTES, GPUS, gpu_named
from workbench.allocator.simulator.settings import MIB, SettingsError
from workbench.allocator.snapshot.decode import of_live
from workbench.memory import memory
from workbench.memory.files.replayed_snapshot import replayed_record
from workbench.memory.reading.recorded_program import CUT_OFF
from workbench.memory.simulation.what_if import smallest_gpu, what_if


def made_snapshot(entries, segments, blocks):
    """As ``torch.cuda.memory._snapshot()`` gives it; a block lies in the segment it begins in."""
    trace = []
    for number, (action, address, size) in enumerate(entries):
        where = {"device_free": address} if action == "oom" else {"addr": address}
        trace.append({"action": action, "size": size, "stream": 0, "time_us": number, **where})
    found = []
    for segment in segments:
        end = segment["address"] + segment["total_size"]
        inside = [b for b in blocks if segment["address"] <= b["address"] < end]
        held = [{"state": "active_allocated", **block} for block in inside]
        found.append({"device": 0, "stream": 0, "blocks": held, **segment})
    return {"segments": found, "device_traces": [trace], "allocator_settings": {}}


@pytest.fixture(scope="module")
def training_step():
    return memory(path_of("transformer_training_step")).record


@pytest.mark.parametrize("name", FILES)
def test_as_recorded_the_peak_is_the_recorded_one_to_the_byte(name):
    """Also if the trace starts in the middle, and releases segments that were there before."""
    record = memory(path_of(name)).record
    found = what_if(record)
    assert found.outcome.fits
    assert found.outcome.peak_reserved == int(record.reserved().max())
    assert found.outcome.peak_allocated == record.peak_bytes
    assert found.is_certified
    assert "certified rules" in str(found)


def test_expandable_segments_waste_less_and_no_trace_has_confirmed_them(training_step):
    plain = what_if(training_step)
    expandable = what_if(training_step, "expandable_segments:True")
    assert expandable.outcome.peak_reserved < plain.outcome.peak_reserved
    assert expandable.outcome.peak_reserved >= expandable.outcome.peak_allocated
    assert not expandable.is_certified
    assert "no trace has confirmed" in str(expandable)


def test_a_smaller_gpu_gives_back_what_is_unused_and_then_runs_out(training_step):
    peak = what_if(training_step).outcome.peak_reserved
    tight = what_if(training_step, gpu=peak)  # of which a context takes its part
    assert tight.outcome.num_retries > 0
    assert not tight.is_certified  # the recording never ran out of memory
    small = what_if(training_step, gpu="RTX 4090")
    assert not small.outcome.fits
    assert small.outcome.peak_reserved <= gpu_named("RTX 4090").usable_bytes
    assert 0 <= small.outcome.failed_event < len(training_step.event_kind)
    assert "out of memory at event" in str(small)
    assert small.outcome.failure is not None
    missing = small.outcome.shortage
    assert missing is not None
    assert missing.largest_free < missing.size
    held = training_step.block_bytes[small.outcome.in_the_way]
    assert held.sum() == pytest.approx(
        missing.obstacles[0].in_use, rel=0.1
    )  # a block may keep slack
    assert "it fits once" in str(small)
    assert "out of memory: " in str(small.outcome.failure)


def test_what_does_not_fit_from_the_beginning_says_so(training_step):
    assert (training_step.block_start < 0).any()
    found = what_if(training_step, gpu="600 MiB")
    assert found.outcome.failed_event == -1
    assert " out of memory before the first event (" in str(found)


def test_the_smallest_gpu_is_the_smallest_that_fits(training_step):
    found = smallest_gpu(training_step)
    assert found is not None
    assert found.card is not None
    assert found.outcome.fits
    for card in GPUS[: GPUS.index(found.card)]:
        assert not what_if(training_step, gpu=card).outcome.fits


def recorded(*entries, segments=(), blocks=()):
    """A record of made-up entries (action, address, bytes)."""
    return replayed_record(of_live(made_snapshot(entries, segments, blocks)), title="made")


GIB, HERE = 2**30, 0x7F0000000000


def test_what_was_refused_is_asked_for_too():
    there = {"address": HERE, "total_size": 30 * GIB, "segment_type": "large"}
    record = recorded(
        ("segment_alloc", HERE, 30 * GIB),
        ("alloc", HERE, 30 * GIB),
        ("oom", 20 * GIB, 60 * GIB),
        segments=[there],
        blocks=[{"address": HERE, "size": 30 * GIB, "requested_size": 30 * GIB}],
    )
    assert record.certificate is not None
    assert record.certificate.exact
    assert what_if(record).num_refused == 1
    assert smallest_gpu(record) is None
    assert not what_if(record, gpu="A100 80 GB").outcome.fits
    assert what_if(record, gpu=100 * GIB).outcome.fits
    assert not what_if(record, gpu=100 * GIB).fits, "what follows the request is not known"
    assert what_if(record, gpu="100 GiB").card == what_if(record, gpu=100 * GIB).card


def cut_off():
    """A GiB, of which twice as much more is refused, and nothing further."""
    there = {"address": HERE, "total_size": GIB, "segment_type": "large"}
    return recorded(
        ("segment_alloc", HERE, GIB),
        ("alloc", HERE, GIB),
        ("oom", GIB, 2 * GIB),
        segments=[there],
        blocks=[{"address": HERE, "size": GIB, "requested_size": GIB}],
    )


def test_a_record_that_ends_with_a_refused_request_is_never_said_to_fit():
    found = what_if(cut_off(), gpu="T4")
    assert found.outcome.fits
    assert not found.fits
    assert "peak reserved memory 3.0 GiB at least, got past the refused request" in str(found)
    least = smallest_gpu(cut_off())
    assert least is not None
    assert least.is_cut_off, "the smallest that serves the request: a lower bound"
    assert not what_if(cut_off(), gpu="3 GiB").fits
    assert "out of memory" in str(what_if(cut_off(), gpu="3 GiB"))


def test_what_is_predicted_from_such_a_record_is_a_lower_bound_too():
    found = memory(cut_off(), card="T4")
    assert "the least that it takes" in found.record.reasons[0]
    assert not found.what_if(card="A100 80 GB").fits
    again = memory(found.record, card="L40").record
    assert [CUT_OFF in again.reasons, again.reasons.count(CUT_OFF)] == [True, 1]


def test_what_was_cached_before_is_held():
    small = HERE + 20 * GIB
    record = recorded(
        ("segment_alloc", small, 2 << 20),
        ("alloc", small, 512),
        ("segment_free", HERE, 10 * GIB),
        ("free_requested", small, 512),
        ("free_completed", small, 512),
        segments=[{"address": small, "total_size": 2 << 20, "segment_type": "small"}],
        blocks=[{"address": small, "size": 2 << 20, "state": "inactive", "requested_size": 512}],
    )
    found = what_if(record)
    assert found.outcome.peak_reserved == 10 * GIB + (2 << 20) == int(record.reserved().max())


def test_what_was_emptied_by_hand_is_not_held():
    later = HERE + 20 * GIB
    record = recorded(
        ("segment_alloc", HERE, GIB),
        ("alloc", HERE, GIB),
        ("free_requested", HERE, GIB),
        ("free_completed", HERE, GIB),
        ("segment_free", HERE, GIB),
        ("snapshot", 0, 0),
        ("segment_alloc", later, 2 * GIB),
        ("alloc", later, 2 * GIB),
        segments=[{"address": later, "total_size": 2 * GIB, "segment_type": "large"}],
        blocks=[{"address": later, "size": 2 * GIB, "requested_size": 2 * GIB}],
    )
    assert what_if(record).outcome.peak_reserved == 2 * GIB


def test_a_block_that_waits_for_a_stream_goes_when_the_cache_is_emptied():
    size, other = 40 << 20, HERE + (64 << 20)
    record = recorded(
        ("segment_alloc", HERE, size),
        ("alloc", HERE, size),
        ("free_requested", HERE, size),
        ("segment_alloc", other, size),
        ("alloc", other, size),
        ("free_completed", HERE, size),
        segments=[
            {"address": HERE, "total_size": size, "segment_type": "large"},
            {"address": other, "total_size": size, "segment_type": "large"},
        ],
        blocks=[
            {"address": HERE, "size": size, "state": "inactive", "requested_size": size},
            {"address": other, "size": size, "requested_size": size},
        ],
    )
    assert record.block_pending.max() >= 0
    found = what_if(record, gpu=CONTEXT_BYTES + (60 << 20))
    assert found.outcome.fits
    assert found.outcome.num_retries == 1
    assert not found.is_certified  # the recording never ran out of memory


@pytest.mark.parametrize("card", [0, -1, CONTEXT_BYTES])
def test_a_gpu_with_nothing_left(training_step, card):
    with pytest.raises(ValueError, match="has nothing left"):
        what_if(training_step, gpu=card)


def test_collecting_garbage_needs_a_gpu(training_step):
    with pytest.raises(SettingsError, match="acts only on a GPU with a limit"):
        what_if(training_step, "garbage_collection_threshold:0.8")
    found = what_if(training_step, "garbage_collection_threshold:0.5", "H100 80 GB")
    assert not found.is_certified


def test_a_recording_on_the_cpu_is_a_program_too():
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 10))
    with memory() as found:
        model(torch.randn(64, 256)).sum().backward()
    answer = what_if(found.record)
    assert answer.outcome.fits
    assert answer.outcome.peak_allocated >= found.record.peak_bytes
    assert answer.outcome.peak_reserved % (2 * MIB) == 0
    assert not answer.is_certified


@pytest.mark.parametrize(
    ("settings", "card", "error", "part"),
    [
        ("max_split_size_mb:1", None, SettingsError, "at least 20 MiB"),
        ("", "RTX 9999", ValueError, "known are T4"),
    ],
)
def test_what_does_not_exist_is_said(training_step, settings, card, error, part):
    with pytest.raises(error, match=part):
        what_if(training_step, settings, card)


def test_gpus_are_in_order_and_leave_room_for_a_context():
    totals = [card.total_bytes for card in GPUS]
    assert totals == sorted(totals)
    assert all(0 < card.usable_bytes < card.total_bytes for card in GPUS)
    assert gpu_named("h100 80gb") is gpu_named("H100 80 GB")


def test_a_view_answers_too():
    view = memory(path_of("transformer_forward_mixed"))
    assert view.certificate is not None
    assert view.certificate.exact
    parts = view.fragmentation()
    assert sum(parts.values()).tolist() == view.record.reserved().tolist()
    assert view.what_if("expandable_segments:True").outcome.fits
    found = view.smallest_card()
    assert found is not None
    assert str(found).startswith("default on ")
