"""The byte format: what goes in comes out, and anything else is refused with one clear sentence."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.records.support import graph_record, memory_chart, memory_record, samples
from workbench.records import GraphRecord, MemoryRecord, Record, RecordError, read_record, to_json
from workbench.records.base import columns


def same(left: Any, right: Any) -> bool:
    """Equality that counts NaN as equal to itself."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return left == right


def assert_same_record(left: Record, right: Record) -> None:
    assert type(left) is type(right)
    arrays = columns(type(left))
    for field in dataclasses.fields(left):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if field.name in arrays:
            assert a.dtype == b.dtype == arrays[field.name]
            np.testing.assert_array_equal(a, b)
        elif field.name != "loss":
            assert same(a, b), field.name


@pytest.mark.parametrize("record", samples().values(), ids=list(samples()))
def test_a_record_survives_its_own_bytes(record: Record) -> None:
    again = read_record(record.to_bytes())
    assert_same_record(record, again)


def test_a_loss_that_is_not_a_number_travels_as_none() -> None:
    assert GraphRecord.from_bytes(graph_record().to_bytes()).loss is None


def test_a_record_survives_a_file(tmp_path: Path) -> None:
    path = memory_record().save(tmp_path / "step.safetensors")
    assert_same_record(memory_record(), read_record(path.read_bytes()))


def test_columns_are_copies_that_nobody_can_change() -> None:
    live = np.array([1, 2, 3], dtype=np.int32)
    record = dataclasses.replace(graph_record(), node_type=live)
    live[0] = 99
    assert record.node_type.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        record.node_type[0] = 5


def test_reading_another_kind_says_which_was_found() -> None:
    with pytest.raises(
        RecordError, match=r"expected a workbench.graph/3 record, got workbench.memory/3"
    ):
        GraphRecord.from_bytes(memory_record().to_bytes())


def with_metadata(record: Record, /, **changes: str | None) -> bytes:
    """The record's bytes with entries of its metadata replaced or, for None, removed."""
    data = record.to_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata = {**header["__metadata__"], **changes}
    header["__metadata__"] = {key: value for key, value in metadata.items() if value is not None}
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    return struct.pack("<Q", len(packed)) + packed + data[8 + size :]


def test_a_newer_version_is_refused_with_the_versions_that_can_be_read() -> None:
    data = with_metadata(memory_chart(), schema="workbench.memory_chart/99")
    with pytest.raises(RecordError, match=r"memory_chart/99.*this version reads: .*graph/3"):
        read_record(data)


def test_a_field_that_is_missing_is_damage_and_an_extra_one_is_not() -> None:
    plain = json.loads(read_metadata(memory_chart())["record"])
    lacking = {key: value for key, value in plain.items() if key != "peak_bytes"}
    with pytest.raises(RecordError, match=r"damaged workbench.memory_chart/1 record.*peak_bytes"):
        read_record(with_metadata(memory_chart(), record=json.dumps(lacking)))
    newer = json.dumps({**plain, "added_later": 1})
    assert_same_record(memory_chart(), read_record(with_metadata(memory_chart(), record=newer)))


def read_metadata(record: Record) -> dict[str, str]:
    data = record.to_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size])["__metadata__"]


@pytest.mark.parametrize(
    "data",
    [b"", b"1234567", b"\xff" * 64, b"PK\x03\x04 a zip file, by the look of it", bytes(100)],
    ids=["empty", "short", "ones", "zip", "zeros"],
)
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        read_record(data)


def test_a_truncated_record_is_refused() -> None:
    data = graph_record().to_bytes()
    for size in range(0, len(data), 97):
        with pytest.raises(RecordError):
            read_record(data[:size])


def test_json_of_a_record_has_no_nan() -> None:
    text = json.dumps(to_json({"loss": float("inf"), "deep": [float("nan"), 1.5]}))
    assert json.loads(text) == {"loss": None, "deep": [None, 1.5]}


def test_a_live_object_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"plain data only, got (Posix|Windows)Path"):
        to_json({"path": Path()})


def test_records_are_imported_without_torch() -> None:
    code = "import sys, workbench.records; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_live_bytes_at_the_peak_add_up_to_the_peak() -> None:
    record = memory_record()
    assert record.series()[:, 0].sum() == 1024  # what was there before the first event
    at_peak = record.at_peak()
    assert sum(at_peak.values()) == record.peak_bytes
    assert at_peak["activations"] == 4096


@pytest.mark.parametrize("record", samples().values(), ids=list(samples()))
def test_a_record_is_printed_on_one_short_line(record: Record) -> None:
    text = repr(record)
    assert text.startswith(f"{type(record).__name__}(")
    assert "array(" not in text
    assert "\n" not in text
    assert len(text) < 250


def test_what_is_printed_of_a_record_tells_which_it_is() -> None:
    record = dataclasses.replace(memory_record(), title="digits, step 3")
    text = repr(record)
    assert text.startswith("MemoryRecord(title='digits, step 3', ")
    assert f"device={record.device!r}, peak_bytes={record.peak_bytes}, " in text
    counts = f"num_events={len(record.event_kind)}, num_blocks={len(record.block_start)}"
    assert counts in text
    assert len(repr(dataclasses.replace(record, title="x" * 10**6))) < 300


def test_nodes_read_as_objects() -> None:
    leaf, operation, _ = graph_record().nodes
    assert (leaf.kind, leaf.name, leaf.module) == ("parameter", "head.weight", "head")
    assert operation.source is not None
    assert operation.source.label == "cell [2], line 3"
    assert isinstance(MemoryRecord.from_bytes(memory_record().to_bytes()), MemoryRecord)
