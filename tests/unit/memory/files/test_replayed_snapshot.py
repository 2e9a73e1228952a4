"""Snapshots opened with their replay."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.unit.allocator.traces import FILES, path_of
from workbench.memory import memory
from workbench.memory.files import replayed_snapshot
from workbench.memory.reading.recorded_program import recorded_settings
from workbench.records import MemoryRecord, RecordError


@pytest.mark.parametrize("name", FILES)
def test_a_real_trace_opens_with_an_exact_certificate(name):
    record = memory(path_of(name)).record
    assert record.certificate is not None
    assert record.certificate.exact
    assert record.certificate.num_addresses > 1000
    assert MemoryRecord.from_bytes(record.to_bytes()).certificate == record.certificate


def test_a_longer_trace_is_replayed_when_asked_for(monkeypatch):
    path = path_of("transformer_training_steady")
    whole = memory(path).record
    monkeypatch.setattr(replayed_snapshot, "MOST_EVENTS", 1000)
    opened = memory(path).record
    assert opened.certificate is None
    (note,) = [note for note in opened.notes if note.startswith("Not replayed")]
    assert "22,332 events" in note
    assert "wb.memory(path, certify=True)" in note
    found = memory(path, certify=True).record
    assert found.certificate == whole.certificate
    assert (found.block_bytes == whole.block_bytes).all()
    assert not any(note.startswith("Not replayed") for note in found.notes)


def under_settings(path: Path) -> Path:
    """A snapshot of one block, recorded under settings that change what is read from it."""
    alloc = {"action": "alloc", "addr": 2 << 20, "size": 1200, "stream": 0, "time_us": 1}
    settings = {"expandable_segments": True, "roundup_power2_divisions": {"1": 4, "2": 8}}
    whole = {"segments": [], "device_traces": [[alloc]], "allocator_settings": settings}
    path.write_bytes(pickle.dumps(whole))
    return path


def test_settings_are_known_of_a_trace_that_was_not_replayed(monkeypatch, tmp_path):
    path = under_settings(tmp_path / "odd.pickle")
    replay = memory(path).record
    monkeypatch.setattr(replayed_snapshot, "MOST_EVENTS", 0)
    record = memory(path).record
    assert record.certificate is None
    found = recorded_settings(record)
    assert found.expandable_segments
    assert found.roundup_power2_divisions[:3] == (4, 8, 0)
    assert recorded_settings(replay) == found
    again = memory(memory(record).save(tmp_path / "kept.safetensors")).record
    assert recorded_settings(again) == found
    saved_before = dataclasses.replace(replay, settings="")
    assert recorded_settings(saved_before) == found


def test_what_has_no_trace_cannot_be_certified(tmp_path):
    view = memory(path_of("cnn_old_schema"))
    saved = view.save(tmp_path / "certified.safetensors")
    assert memory(saved, certify=True).record.certificate == view.certificate
    bare = memory(dataclasses.replace(view.record, certificate=None)).save(
        tmp_path / "bare.safetensors"
    )
    with pytest.raises(RecordError, match=r"bare\S* is a record without a certificate.* snapshot"):
        memory(bare, certify=True)
    with pytest.raises(TypeError, match=r"got a MemoryRecord; pass the path"):
        memory(view.record, certify=True)
    with pytest.raises(TypeError, match=r"got a NoneType"):
        memory(certify=True)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"stream": 2**62}, r"block_stream\[0\] is 4611686018427387904, expected less than 2\^53"),
        ({"addr": 2**60}, r"block_address\[0\] is 1152921504606846976"),
        ({"size": 2**60}, r"block_bytes\[0\] is 1152921504606846976"),
    ],
)
def test_numbers_that_no_reader_of_a_record_takes_are_refused_when_a_file_opens(
    entry, said, tmp_path
):
    alloc = {"action": "alloc", "addr": 512, "size": 700, "stream": 0, "time_us": 1} | entry
    path = tmp_path / "odd.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[alloc]]}))
    with pytest.raises(RecordError, match=r"odd\.pickle holds what no allocator writes: " + said):
        memory(path)


@pytest.mark.parametrize("name", FILES)
def test_blocks_never_overlap_nor_leave_their_segment(name):
    """With the sizes that the replay found; sizes that are only rounded would leave holes."""
    record = memory(path_of(name)).record
    for event in np.linspace(0, len(record.event_kind) - 1, 25).astype(int):
        live = (record.block_start <= event) & ((record.block_end < 0) | (record.block_end > event))
        order = np.argsort(record.block_address[live])
        start = record.block_address[live][order]
        end = start + record.block_bytes[live][order]
        assert (start[1:] >= end[:-1]).all()
        segment = record.block_segment[live][order]
        assert (segment >= 0).all()
        left = record.segment_address[segment]
        assert ((start >= left) & (end <= left + record.segment_bytes[segment])).all()
