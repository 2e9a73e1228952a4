"""Snapshots opened with their replay."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.allocator.traces import FILES, path_of
from workbench.memory import memory
from workbench.records import MemoryRecord


@pytest.mark.parametrize("name", FILES)
def test_a_real_trace_opens_with_an_exact_certificate(name):
    record = memory(path_of(name)).record
    assert record.certificate is not None
    assert record.certificate.exact
    assert record.certificate.num_addresses > 1000
    assert MemoryRecord.from_bytes(record.to_bytes()).certificate == record.certificate


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
