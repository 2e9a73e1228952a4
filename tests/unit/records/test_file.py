"""A file is read as a record only where it begins as one."""

from __future__ import annotations

import json

import pytest

from workbench.records import GraphRecord, MemoryRecord, Record, RecordError
from workbench.records.file import begins_as_record, check_size, read_record_file
from workbench.trust import OpenFile


def written(path, header: bytes, length: int | None = None):
    declared = len(header) if length is None else length
    path.write_bytes(declared.to_bytes(8, "little") + header)
    return path


def header_of(schema: str) -> bytes:
    return json.dumps({"__metadata__": {"schema": schema}}).encode()


@pytest.mark.parametrize(
    ("header", "length", "said"),
    [
        (b"", None, "as no whole record does"),
        (b"{}", 2**63, "as no whole record does"),
        (b"{}", 3, "as no whole record does"),
        (b"{}", None, "its header names no schema"),
        (b"[" * 100_000, None, "its header names no schema"),
        (b'{"__metadata__": 3}', None, "its header names no schema"),
        (b"\xff\xfe", None, "its header names no schema"),
        (header_of("workbench.memory/0"), None, "unknown record schema 'workbench.memory/0'"),
        (header_of(GraphRecord.schema), None, "expected a workbench.memory/3 record, got"),
        (header_of(MemoryRecord.schema), None, "damaged workbench.memory/3 record"),
    ],
)
def test_what_a_header_lacks_is_said(header, length, said, tmp_path):
    path = written(tmp_path / "odd", header, length)
    with OpenFile.at(path) as file, pytest.raises(RecordError, match=said):
        read_record_file(file, MemoryRecord)


def test_a_header_longer_than_any_is_not_read(tmp_path):
    path = written(tmp_path / "long", b"{}", 200_000_000)
    with path.open("r+b") as stream:
        stream.truncate(300_000_000)
    with OpenFile.at(path) as file:
        with pytest.raises(RecordError, match="as no whole record does"):
            read_record_file(file, Record)
        assert not begins_as_record(file)


def test_a_file_larger_than_what_is_read_is_told_from_its_size(tmp_path):
    path = written(tmp_path / "step.safetensors", b"{}")
    with OpenFile.at(path) as file:
        check_size(file)
        with pytest.raises(RecordError, match=r"step\.safetensors has 0\.0 GiB; files up to"):
            check_size(file, largest=9)
