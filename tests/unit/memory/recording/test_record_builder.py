"""Ticks become events without gaps; a CUDA allocator's history is joined by address and time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.unit.allocator.traces import FILES, path_of, snapshot_of
from workbench.allocator.snapshot.decode import of_live
from workbench.memory.files.snapshot import open_file
from workbench.memory.recording.cuda_history import AllocatorHistory
from workbench.memory.recording.record_builder import build_record, main_device
from workbench.memory.recording.recorder import Recorder
from workbench.memory.recording.storage_lifetimes import Block, Mark
from workbench.records import CATEGORIES, EVENT_KINDS, Phase


def block(start: int, end: int, num_bytes: int, device: str = "cpu") -> Block:
    made = Block(num_bytes, device, 0)
    made.start, made.end = start, end
    return made


def test_an_accelerator_matters_more_than_the_cpu():
    assert main_device([block(0, -1, 10**9), block(1, -1, 1, "cuda:1")]) == "cuda:1"
    assert main_device([block(0, -1, 1, "cuda:0"), block(1, -1, 2, "cuda:1")]) == "cuda:1"
    assert main_device([]) == "cpu"


def test_what_is_on_other_devices_leaves_no_gap_and_is_said():
    recorder = Recorder()
    recorder.blocks = [block(0, 5, 8, "cuda:0"), block(2, 4, 16), block(3, -1, 32)]
    recorder.marks = [Mark(1, 0, "forward")]
    record = build_record(recorder, AllocatorHistory(), title="t", device="cpu")
    assert record.block_start.tolist() == [0, 1]
    assert record.block_end.tolist() == [2, -1]
    assert record.phases == (Phase(name="forward", start=0, end=3),)
    assert record.notes == ("Memory on cuda:0 is left out.",)


def test_times_never_run_back():
    with torch.no_grad():
        recorder = Recorder()
        with recorder:
            for _ in range(50):
                torch.ones(8)
    record = build_record(recorder, AllocatorHistory(), title="t")
    times = record.event_time_us.tolist()
    assert len(times) == 100
    assert times == sorted(times)
    assert times[0] >= 0


class RecordedHistory(AllocatorHistory):
    """What a CUDA allocator would have said; stands in for the GPU this machine has not."""

    def __init__(self, events: list[tuple[str, int, int, int]], blocks: list[dict]) -> None:
        super().__init__()
        trace = [
            {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time}
            for action, address, size, time in events
        ]
        segment = {
            "device": 0, "address": 0, "total_size": 1 << 21, "segment_type": "small",
            "blocks": blocks,
        }  # fmt: skip
        self._snapshot = of_live(
            {
                "segments": [segment],
                "device_traces": [trace],
                "allocator_settings": {"max_split_size": 32 << 20},
            }
        )

    def stop(self, device: str):
        assert device == "cuda:0"
        return self._snapshot


def test_a_segment_that_the_allocator_takes_meanwhile_is_an_event_of_its_own():
    whole = {"address": 0, "size": 1 << 21, "state": "inactive"}
    history = RecordedHistory(
        [
            ("segment_alloc", 0, 1 << 21, 1_000),
            ("alloc", 0, 700, 2_000),
            ("free_completed", 0, 700, 3_000),
        ],
        [whole],
    )
    record = build_record(Recorder(), history, title="step", device="cuda:0")
    assert (record.block_start.tolist(), record.block_end.tolist()) == ([1], [2])
    assert (record.peak_event, record.peak_bytes) == (1, 1024)
    assert record.reserved_bytes == 1 << 21


@pytest.mark.parametrize("name", FILES)
def test_a_real_history_that_nobody_described_is_what_its_file_holds(name: str):
    class Real(AllocatorHistory):
        def stop(self, device: str):
            assert device == "cuda:0"
            return snapshot_of(name)

    record = build_record(Recorder(), Real(), title="step", device="cuda:0")
    whole = open_file(path_of(name))
    np.testing.assert_array_equal(record.series(), whole.series())
    np.testing.assert_array_equal(record.reserved(), whole.reserved())
    assert (record.peak_event, record.peak_bytes) == (whole.peak_event, whole.peak_bytes)
    assert record.reserved_bytes == whole.reserved_bytes
    assert record.certificate == whole.certificate


def test_the_allocators_events_are_the_record_and_the_recorder_says_what_they_were_for():
    recorder = Recorder()
    recorder.started_ns = 0
    recorder.marks = [
        Mark(1, 1_000_000, "forward"),
        Mark(4, 5_000_000, "backward"),
        Mark(9, 9_000_000, ""),
    ]
    weight = Block(1000, "cuda:0", 0)
    weight.category, weight.name, weight.module = "parameters", "head.weight", "head"
    logits = Block(700, "cuda:0", 1024)
    logits.start, logits.end = 2, 6
    logits.started_ns, logits.ended_ns = 2_020_000, 7_000_000
    logits.op, logits.module = "aten.addmm", "head"
    gradient = Block(1000, "cuda:0", 1024)
    gradient.start, gradient.started_ns = 7, 8_030_000
    gradient.category, gradient.op = "gradients", "aten.mm"
    recorder.blocks = [weight, logits, gradient]
    history = RecordedHistory(
        [
            ("alloc", 1024, 700, 2_000),
            ("alloc", 4096, 33_000, 3_000),  # a workspace inside the kernel
            ("free_completed", 4096, 33_000, 3_500),
            ("free_completed", 1024, 700, 7_000),
            ("alloc", 1024, 1000, 8_000),
        ],
        [
            {"address": 0, "size": 1024, "state": "active_allocated"},
            {"address": 1024, "size": 1536, "state": "active_allocated"},
            {"address": 2560, "size": (1 << 21) - 2560, "state": "inactive"},
        ],
    )
    record = build_record(recorder, history, title="step")
    said = [
        (CATEGORIES[record.block_category[row]], record.strings[record.block_op[row]],
         int(record.block_bytes[row]), int(record.block_address[row]))
        for row in range(len(record.block_start))
    ]  # fmt: skip
    assert said == [
        ("parameters", "", 1024, 0),
        ("activations", "aten.addmm", 1024, 1024),
        ("temporaries", "", 33_280, 4096),
        ("gradients", "aten.mm", 1536, 1024),
    ]
    assert record.phases == (
        Phase(name="forward", start=0, end=3),
        Phase(name="backward", start=3, end=5),
    )
    assert record.block_requested.tolist() == [1024, 700, 33_000, 1000]
    assert record.block_segment.tolist() == [0, 0, 0, 0]
    assert [EVENT_KINDS[kind] for kind in record.event_kind] == [
        "alloc", "alloc", "free", "free", "alloc",
    ]  # fmt: skip
    assert record.event_time_us.tolist() == [2_000, 3_000, 3_500, 7_000, 8_000]
    assert record.reserved_bytes == 1 << 21
    assert "CUDA allocator" in record.basis
    assert record.settings == "max_split_size_mb:32"
