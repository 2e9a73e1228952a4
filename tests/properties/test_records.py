"""Any record survives its bytes, and no bytes whatever make the reader fail in another way."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.unit.records.support import graph_record, memory_chart
from tests.unit.records.test_base import assert_same_record
from workbench.records import CATEGORIES, MemoryChart, RecordError, read_record

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
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
