"""Any record survives its bytes, and no bytes whatever make the reader fail in another way."""

from __future__ import annotations

import dataclasses
import unicodedata

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.unit.records.support import graph_record, memory_chart
from tests.unit.records.test_base import assert_same_record
from workbench.records import CATEGORIES, GraphRecord, MemoryChart, RecordError, read_record

# What people write: letters, signs, spaces and lines. Line ends of Unicode, controls, formats and
# characters that do not exist are not among it.
SHOWN = st.characters(exclude_categories=["C", "Zl", "Zp"], include_characters="\t\n")
TEXT = st.text(SHOWN, max_size=200)
ANYTHING = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
FLOATS = arrays.arrays(np.float32, 2 * len(CATEGORIES), elements=st.floats(width=32))


@given(basis=TEXT, label=TEXT, values=FLOATS, peak=st.integers(0, 2**53 - 1))
def test_any_chart_survives(basis: str, label: str, values: np.ndarray, peak: int) -> None:
    record = dataclasses.replace(
        memory_chart(), basis=basis, peak_label=label, bytes=values, peak_bytes=peak
    )
    assert_same_record(record, MemoryChart.from_bytes(record.to_bytes()))


@given(text=TEXT, sequence=arrays.arrays(np.int64, 3, elements=st.integers(-1, 2**53 - 1)))
def test_any_graph_survives(text: str, sequence: np.ndarray) -> None:
    strings = tuple(text for _ in graph_record().strings)
    record = dataclasses.replace(
        graph_record(), strings=strings, title=text, node_sequence=sequence, loss=None
    )
    assert_same_record(record, read_record(record.to_bytes()))


@given(text=ANYTHING)
def test_of_any_text_each_character_is_itself_or_is_marked_as_replaced(text: str) -> None:
    record = dataclasses.replace(graph_record(), title=text)
    read = GraphRecord.from_bytes(record.to_bytes())

    assert len(read.title) == len(text)
    changed = {
        before: after for before, after in zip(text, read.title, strict=True) if before != after
    }
    assert set(changed.values()) <= {"\N{REPLACEMENT CHARACTER}"}
    assert {unicodedata.category(one)[0] for one in changed} <= {"C", "Z"}
    controls = {one for one in read.title if unicodedata.category(one) in ("Cc", "Zl", "Zp")}
    assert controls <= {"\t", "\n"}
    assert_same_record(read, GraphRecord.from_bytes(read.to_bytes()))


@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_as_no_record(data: bytes) -> None:
    try:
        read_record(data)
    except RecordError:
        return


WHOLE = graph_record().to_bytes()


@given(at=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255))
def test_a_flipped_byte_is_read_or_refused_as_damage(at: int, byte: int) -> None:
    try:
        read_record(WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :])
    except RecordError:
        return
