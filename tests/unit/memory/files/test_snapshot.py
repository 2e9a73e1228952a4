"""Real allocator snapshots open; everything else is told apart in one sentence."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from tests.strangers import as_stranger, begin_as_stranger, needs_a_stranger, shared_folder
from tests.unit.allocator.traces import path_of
from workbench.allocator.snapshot import decode
from workbench.memory import memory
from workbench.memory.files import replayed_snapshot
from workbench.memory.files.file_process import MemoryFile
from workbench.records import GraphRecord, MemoryRecord, RecordError
from workbench.records.file import LARGEST_BYTES
from workbench.trust import NotAFileError

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
    monkeypatch.setattr(replayed_snapshot, "MOST_EVENTS", 0)
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
    view = memory(path)
    assert "Nothing was allocated or freed on cuda:0" in str(view)
    note = next(note for note in view.record.notes if "holds no trace" in note)
    assert "torch.cuda.memory._record_memory_history() before" in note
    assert note in str(view)


def test_no_file_is_opened_that_a_snapshot_names(tmp_path: Path):
    pipe, code = tmp_path / "pipe.py", tmp_path / "code.py"
    os.mkfifo(pipe)  # whoever opens it to read waits for somebody who writes
    code.write_text("secret = 3\n")
    names = [str(pipe), str(code), "json/decoder.py"]
    trace = [
        {"action": "alloc", "addr": 512 * row, "size": 512, "stream": 0, "time_us": row,
         "frames": [{"filename": name, "line": 1, "name": "step"}]}
        for row, name in enumerate(names, 1)
    ]  # fmt: skip
    path = tmp_path / "trace.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    sources = memory(path).record.sources
    assert {source.filename for source in sources} == set(names)
    assert {source.text for source in sources} == {""}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ["trace.pickle", "trace.bin"])
def test_a_snapshot_opens_whatever_its_protocol_and_its_name(protocol, name, tmp_path: Path):
    alloc = {"action": "alloc", "addr": 512, "size": 700, "stream": 0, "time_us": 1}
    path = tmp_path / name
    whole = {"segments": [], "device_traces": [[alloc]]}
    path.write_bytes(pickle.dumps(whole, protocol=protocol))
    assert memory(path).record.block_requested.tolist() == [700]
    assert wb.open(path).record.block_requested.tolist() == [700]
    kind, data = MemoryFile(path, path.stat().st_size).answer({"do": "record"})
    assert kind == "record"
    assert MemoryRecord.from_bytes(data).block_requested.tolist() == [700]


@pytest.mark.parametrize("where", ["the file", "its folder"])
def test_a_file_that_has_become_a_link_is_not_followed(where: str, tmp_path: Path):
    """The server has judged its path before: one with all links resolved."""
    alloc = {"action": "alloc", "addr": 512, "size": 700, "stream": 0, "time_us": 1}
    away = tmp_path / "away"
    away.mkdir()
    (away / "trace.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": [[alloc]]}))
    path = tmp_path / "captures" / "trace.pickle"
    if where == "the file":
        path.parent.mkdir()
        path.symlink_to(away / "trace.pickle")
    else:
        path.parent.symlink_to(away)
    with pytest.raises(NotAFileError):
        MemoryFile(path, 1 << 20).answer({"do": "record"})


SWAP = """
folder, mine, secret = sys.argv[1:4]
path, aside = os.path.join(folder, "trace.pickle"), os.path.join(folder, "draft")
print("begun", flush=True)
while True:
    for make in (os.link, os.symlink, os.symlink):
        made = mine if make is os.link else secret
        make(made, aside)
        os.rename(aside, path)
    os.rename(folder, folder + ".old")  # and the same with the folder that it is in
    os.symlink(os.path.dirname(secret), folder)
    os.unlink(folder)
    os.rename(folder + ".old", folder)
"""


@needs_a_stranger
@pytest.mark.parametrize("times", [300, pytest.param(20_000, marks=pytest.mark.fuzz)])
def test_a_file_that_a_second_user_swaps_leads_to_no_other(times: int, tmp_path: Path):
    """Of 522 answers, 202 were of a file outside the server's root."""
    alloc = {"action": "alloc", "addr": 512, "size": 700, "stream": 0, "time_us": 1}
    snapshot = {"segments": [], "device_traces": [[alloc]]}
    secret = tmp_path / "trace.pickle"
    secret.write_bytes(pickle.dumps({**snapshot, "device_traces": [[{**alloc, "size": 701}]]}))
    with shared_folder() as shared:
        folder = shared / "captures"
        folder.mkdir()
        folder.chmod(0o777)
        mine = folder / "mine"
        as_stranger("open(sys.argv[1], 'wb').write(bytes.fromhex(sys.argv[2]))",
                    mine, pickle.dumps(snapshot).hex())  # fmt: skip
        met = dict[str, int]()
        with begin_as_stranger(SWAP, folder, mine, secret) as swaps:
            try:
                assert swaps.stdout is not None
                assert swaps.stdout.readline() == "begun\n"
                while sum(met.values()) < times or not {"[700]", "NotAFileError"} <= set(met):
                    assert swaps.poll() is None, "he goes on"
                    try:
                        file = MemoryFile(folder / "trace.pickle", 1 << 20)
                        data = file.answer({"do": "record"})[1]
                        what = str(MemoryRecord.from_bytes(data).block_requested.tolist())
                    except OSError as error:
                        what = type(error).__name__
                    met[what] = met.get(what, 0) + 1
            finally:
                swaps.kill()
    assert "[701]" not in met


def test_a_record_is_not_taken_for_a_pickle(hand_record, tmp_path: Path):
    for length in range(0, 256, 8):  # of its header, which its first byte says
        record = hand_record([(0, 1, 2, "activations", "")], title="x" * length)
        if record.to_bytes()[:1] == b"\x80":
            break
    else:
        pytest.fail("no header has a length that begins like a pickle")
    for name in ("step.safetensors", "step.pickle"):
        path = record.save(tmp_path / name)
        assert memory(path).record.title == record.title
        assert MemoryFile(path, path.stat().st_size).answer({"do": "record"})[0] == "record"


def test_a_saved_record_that_is_too_large_or_of_another_kind_is_not_read(tmp_path: Path):
    path = tmp_path / "big.safetensors"
    header = json.dumps({"__metadata__": {"schema": GraphRecord.schema}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 2 << 30)  # takes no room on the disk
    with pytest.raises(RecordError, match=r"expected a workbench\.memory/\d record, got workbench"):
        memory(path)
    os.truncate(path, LARGEST_BYTES + 1)
    for read in (memory, wb.open):
        with pytest.raises(RecordError, match=r"big\.safetensors has 4\.0 GiB; files up to 4 GiB"):
            read(path)


PACKED = b"PK\x03\x04" + bytes(22) + (12).to_bytes(2, "little") + bytes(2) + b"notes/a.txt "


@pytest.mark.parametrize("name", ["odd.pickle", "odd.dat", "odd.safetensors"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (gzip.compress(b"a snapshot", mtime=0), "it is gzip-compressed: unpack it first"),
        (bz2.compress(b"a snapshot"), "it is bzip2-compressed: unpack it first"),
        (lzma.compress(b"a snapshot"), "it is xz-compressed: unpack it first"),
        (PACKED, "it is a zip archive: unpack it first"),
    ],
)
def test_a_file_of_another_kind_is_told_for_what_it_is(name, content, said, tmp_path: Path):
    path = tmp_path / name
    path.write_bytes(content)
    for read in (memory, wb.open):
        with pytest.raises(RecordError) as refusal:
            read(path)
        assert str(refusal.value).startswith(f"{name} is no ")
        assert said in str(refusal.value)
        assert "_dump_snapshot(path) write files that open" in str(refusal.value)
    with pytest.raises(RecordError, match=said):
        MemoryFile(path, path.stat().st_size).answer({"do": "record"})


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", ["model.pt", "model.pickle", "model.dat"])
def test_a_checkpoint_is_told_for_one(name, zipped, tmp_path: Path):
    import torch

    path = tmp_path / name
    torch.save({"weight": torch.ones(3)}, path, _use_new_zipfile_serialization=zipped)
    for read in (memory, wb.open):
        with pytest.raises(RecordError, match=r"it is a torch\.save checkpoint\. view\.save"):
            read(path)


def test_a_folder_and_a_file_that_is_not_there_are_told_apart(tmp_path: Path):
    for read in (memory, wb.open):
        with pytest.raises(RecordError, match="is a folder: name a file in it"):
            read(tmp_path)
        with pytest.raises(FileNotFoundError, match="there is no file"):
            read(tmp_path / "absent.dat")


def test_what_begins_as_nothing_known_is_shown(tmp_path: Path):
    path = tmp_path / "notes.dat"
    path.write_text("<html>")
    for read in (memory, wb.open):
        with pytest.raises(RecordError, match="it begins with b'<html>', as no whole record does"):
            read(path)


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
