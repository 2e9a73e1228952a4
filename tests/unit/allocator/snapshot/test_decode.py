"""Files are opened, or not, with a sentence that names them; a reader's answer is not believed."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.allocator.made import made_file, made_snapshot
from workbench.allocator.snapshot import decode
from workbench.allocator.snapshot.assemble import TYPES
from workbench.allocator.snapshot.columns import columns_of
from workbench.allocator.snapshot.plain import RefusedError
from workbench.allocator.snapshot.snapshot import Snapshot
from workbench.allocator.snapshot.unpickle import MAGIC, write
from workbench.records import RecordError


def equal(one: Snapshot, other: Snapshot) -> bool:
    same = [
        np.array_equal(value, getattr(other, name)) if isinstance(value, np.ndarray)
        else value == getattr(other, name)
        for name, value in vars(one).items()
    ]  # fmt: skip
    return all(same)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_file_says_what_the_live_snapshot_says(protocol: int, tmp_path: Path):
    path, data = tmp_path / "run.pickle", made_snapshot(2000)
    path.write_bytes(pickle.dumps(data, protocol))
    assert equal(decode.read(path), decode.of_live(data))
    assert equal(decode.read(str(path), 0), decode.of_live(data))


def test_what_follows_the_pickle_does_not_matter(tmp_path: Path):
    path = made_file(tmp_path / "run.pickle", 100)
    path.write_bytes(path.read_bytes() + b"\0" * 3)
    assert decode.read(path).num_events >= 100


def test_a_device_the_file_does_not_hold_is_refused_with_those_it_does(tmp_path: Path):
    path = made_file(tmp_path / "run.pickle", 100)
    with pytest.raises(RecordError, match=r"run\.pickle holds cuda:0, not cuda:3"):
        decode.read(path, 3)
    with pytest.raises(RecordError, match="counted from 0, so there is no cuda:-1"):
        decode.read(path, -1)


def test_what_is_no_file_is_not_opened(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        decode.read(tmp_path / "absent.pickle")
    with pytest.raises(RecordError, match="is a folder"):
        decode.read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_named_pipe_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.pickle")
    with pytest.raises(RecordError, match="is a named pipe"):
        decode.read(tmp_path / "pipe.pickle")


def test_a_file_too_large_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decode, "LARGEST_BYTES", 100)
    with pytest.raises(RecordError, match="record fewer events"):
        decode.read(made_file(tmp_path / "run.pickle", 100))


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import time; time.sleep(600)", "takes longer than 1 s"),
        ("import os; os.kill(os.getpid(), 11)", "nested too deeply"),
        ("import os; os.kill(os.getpid(), 9)", "memory runs out"),
        ("import os; os.kill(os.getpid(), 24)", "120 s of processor time"),
        ("import os; os._exit(5)", r"ended its reader \(status 5\)"),
        ("import os; os._exit(3)", "did not say why"),
        ("import os; os.write(2, b'full'); os._exit(4)", "could not be read: full"),
        ("import os; os.write(2, b'odd\\n\\x1b[31m' + b'x' * 9999); os._exit(3)", "odd x?"),
        ("pass", "returned no columns"),
        ("print('WBALLOC1' + 'x' * 8)", "returned no columns"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_however_a_reader_ends_there_is_a_sentence(
    program: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decode, "_START", program)
    monkeypatch.setattr(decode, "_SECONDS_BASE", 1 if "sleep" in program else 120)
    with pytest.raises(RecordError, match=words) as refused:
        decode.read(made_file(tmp_path / "run.pickle", 10))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 600


def answer(change: Any = None, **arrays: Any) -> bytes:
    """What a reader writes of a small snapshot, with some columns replaced."""
    columns = columns_of(made_snapshot(200))
    for name, make in arrays.items():
        column = make(columns.arrays[name][:])
        if column is None:
            del columns.arrays[name]
        else:
            columns.arrays[name] = column
    if change is not None:
        change(columns)
    out = io.BytesIO()
    write(columns, out)
    return out.getvalue()


def parsed(data: bytes) -> Snapshot:
    return decode._parse(io.BytesIO(data), len(data))


ANY_NUMBER = {"address", "stream", "time_us", "segment_stream", "annotation_time_us"}
NOT_NEGATIVE = {"size", "segment_bytes", "block_bytes", "block_requested", "frame_line"}


def impossible(name: str) -> list[int]:
    """Numbers that no row of a column can hold."""
    if TYPES[name] == "B":
        return [255]
    return [-(1 << 31)] if name in NOT_NEGATIVE else [-(1 << 31), (1 << 31) - 1]


def test_an_answer_that_is_whole_is_the_snapshot():
    assert equal(parsed(answer()), decode.of_live(made_snapshot(200)))


@pytest.mark.parametrize("name", TYPES)
def test_a_column_that_is_not_there_is_noticed(name: str):
    with pytest.raises(RefusedError, match="its reader returned other columns"):
        parsed(answer(**{name: lambda _: None}))


@pytest.mark.parametrize("name", TYPES)
def test_a_column_too_short_is_noticed(name: str):
    with pytest.raises(RefusedError, match="its reader returned"):
        parsed(answer(**{name: lambda column: column[:-1]}))


@pytest.mark.parametrize("name", sorted(set(TYPES) - ANY_NUMBER))
@pytest.mark.parametrize("at", [0, -1])
def test_a_number_that_cannot_be_is_noticed(name: str, at: int):
    for number in impossible(name):

        def put(column: Any, number: int = number) -> Any:
            column[at] = number
            return column

        with pytest.raises(RefusedError):
            parsed(answer(**{name: put}))


def test_text_that_no_encoding_can_write_is_mended_also_where_a_reader_gave_it():
    def change(columns: Any) -> None:
        columns.strings[0] = "\ud800.py"
        columns.settings["\udfff"] = "\ud800"

    found = parsed(answer(change))
    assert "?.py" in {frame.filename for frame in found.frames}
    assert found.settings["?"] == "?"


@pytest.mark.parametrize(
    "header",
    [
        b"", b"null", b"[]", b"{}", b"{", b"\xff", b'{"columns": {"address": ["q", -1]}}',
        b'{"columns": {"address": ["B", 1]}}', b'{"columns": {"other": ["q", 1]}}',
        b'{"columns": {"address": ["q", 9999999999999999999]}}', b"[" * 100_000,
        json.dumps({"columns": {}, "device": "x"}).encode(),
    ],
    ids=range(12),
)  # fmt: skip
def test_no_header_of_a_reader_is_believed(header: bytes):
    with pytest.raises(RefusedError, match="its reader returned"):
        parsed(MAGIC + len(header).to_bytes(8, "little") + header)
