"""Real allocator snapshots open; everything else is told apart in one sentence."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.unit.allocator.traces import path_of
from workbench.allocator import decode
from workbench.memory import memory, replayed
from workbench.records import RecordError

FILES = [
    ("cnn_old_schema", 3_877),
    ("transformer_forward_mixed", 4_578),
    ("transformer_training_step", 14_234),
    ("transformer_training_steady", 14_962),
]


@pytest.mark.parametrize(("name", "num_events"), FILES)
def test_a_real_trace_ends_in_exactly_the_blocks_its_segments_hold(name: str, num_events: int):
    path = path_of(name)
    record = memory(path).record
    with path.open("rb") as stream:
        segments = pickle.load(stream)["segments"]  # a trace we ship with, read the plain way
    blocks = [block for segment in segments for block in segment["blocks"]]
    active = sum(b["size"] for b in blocks if b["state"] != "inactive")
    assert len(record.event_time_us) == num_events
    assert int(record.series()[:, -1].sum()) == active
    assert int(record.series().min()) >= 0
    assert record.reserved()[-1] == sum(s["total_size"] for s in segments)
    assert (record.reserved() >= record.series().sum(axis=0)).all()
    requested = sum(b["requested_size"] for b in blocks if b["state"] != "inactive")
    assert int(record.block_requested[record.block_end < 0].sum()) == requested
    assert record.peak_bytes <= record.reserved_bytes
    view = memory(record)
    assert view.certificate is not None
    assert view.certificate.exact


def test_a_trace_that_cannot_be_replayed_is_shown_all_the_same(monkeypatch, tmp_path: Path):
    trace = [{"action": "alloc", "addr": 512, "size": 700, "stream": 0, "time_us": 1}]
    path = tmp_path / "odd.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    record = memory(path).record
    assert record.block_bytes.tolist() == [1024]
    assert record.certificate is None or not record.certificate.exact
    monkeypatch.setattr(replayed, "MOST_EVENTS", 0)
    record = memory(path).record
    assert record.certificate is None
    assert any(note.startswith("Not replayed") for note in record.notes)


@pytest.mark.parametrize(("name", "_num_events"), FILES)
def test_no_two_blocks_of_a_real_trace_share_memory(name: str, _num_events: int):
    path = path_of(name)
    record = memory(path).record
    live = np.flatnonzero(record.block_end < 0)
    starts, ends = record.block_address[live], record.block_address[live] + record.block_bytes[live]
    order = np.argsort(starts)
    assert (starts[order][1:] >= ends[order][:-1]).all()


def test_a_hostile_file_is_refused_in_one_sentence_and_calls_nothing(tmp_path: Path):
    class Attack:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'touched'}",)

    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps({"segments": [Attack()]}))
    with pytest.raises(
        RecordError, match=r"evil\.pickle is not a CUDA allocator snapshot: it asks"
    ):
        memory(path)
    assert not (tmp_path / "touched").exists()


def test_a_wrong_schema_is_named(tmp_path: Path):
    path = tmp_path / "odd.pickle"
    path.write_bytes(pickle.dumps({"segments": [{"device": 0}]}))
    with pytest.raises(RecordError, match="its schema is not one we know"):
        memory(path)


def test_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "big.pickle"
    path.write_bytes(pickle.dumps({"segments": []}))
    monkeypatch.setattr(decode, "LARGEST_BYTES", 4)
    with pytest.raises(RecordError, match="snapshots up to"):
        memory(path)


def test_a_snapshot_that_is_empty_says_so(tmp_path: Path):
    path = tmp_path / "empty.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    assert "Nothing was allocated or freed on cuda:0" in str(memory(path))


def test_saved_records_open_again_and_other_files_do_not(tmp_path: Path):
    import torch

    with memory() as mem:
        torch.ones(256)
    path = mem.save(tmp_path / "step.safetensors")
    assert memory(path).record.peak_bytes == 1024
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(RecordError, match=r"notes\.txt is no memory record or allocator snapshot"):
        memory(tmp_path / "notes.txt")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        memory(tmp_path / "absent.pickle")
