"""Real traces, replayed: every address, every segment, every release, every block in the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.allocator.traces import FILES, snapshot_of
from workbench.allocator.replay.replay import replay
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import (
    ALLOC,
    ALLOCATED,
    FREE_COMPLETED,
    FREE_REQUESTED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
)

COUNTS = {
    "cnn_old_schema": (1_935, 7, 0, 0),
    "transformer_forward_mixed": (2_703, 461, 0, 0),
    "transformer_training_step": (6_769, 791, 780, 0),
    "transformer_training_steady": (7_591, 1, 0, 438),
}


@pytest.mark.parametrize("name", FILES)
def test_a_real_trace_is_reproduced_to_the_last_address(name):
    snapshot = snapshot_of(name)
    certificate = replay(snapshot).certificate
    assert certificate.exact, certificate
    addresses, segments, releases, inferred = COUNTS[name]
    assert certificate.addresses.total == addresses == int((snapshot.action == ALLOC).sum())
    assert certificate.segments.total == segments
    assert certificate.releases.total == releases == int((snapshot.action == SEGMENT_FREE).sum())
    assert certificate.num_inferred == inferred
    assert certificate.settings == AllocatorSettings()
    assert certificate.cases[:2] == ("small pool", "large pool")
    assert ("segments given back" in certificate.cases) == bool(releases)
    assert certificate.blocks.total == len(snapshot.block_address)


@pytest.mark.parametrize("name", FILES)
def test_sizes_of_blocks_are_those_of_the_snapshot(name):
    """Of blocks that were allocated in the trace and are still there."""
    snapshot = snapshot_of(name)
    sizes = replay(snapshot).sizes
    allocated = snapshot.action == ALLOC
    last = dict(zip(snapshot.address[allocated].tolist(), sizes[allocated].tolist(), strict=True))
    there = snapshot.block_state == ALLOCATED
    found = dict(
        zip(
            snapshot.block_address[there].tolist(),
            snapshot.block_bytes[there].tolist(),
            strict=True,
        )
    )
    both = found.keys() & last.keys()
    assert {address: last[address] for address in both} == {a: found[a] for a in both}
    assert len(both) > 10 or name == "cnn_old_schema"


def test_a_block_that_was_there_before_is_as_large_when_it_goes():
    snapshot = snapshot_of("transformer_training_steady")
    found = replay(snapshot)
    before = {b.address: b.size for s in found.start.segments for b in s.blocks}
    seen = set()
    for row, (action, address) in enumerate(
        zip(snapshot.action.tolist(), snapshot.address.tolist(), strict=True)
    ):
        if address in before and address not in seen and action in (FREE_REQUESTED, FREE_COMPLETED):
            assert found.sizes[row] == before[address]
        seen.add(address)
    assert len(seen & before.keys()) > 400


def test_a_trace_that_is_not_what_the_allocator_does_is_told():
    snapshot = snapshot_of("transformer_forward_mixed")
    row = np.flatnonzero(snapshot.action == ALLOC)[1000]
    address = snapshot.address.copy()
    address[row] += 512
    found = replay(replace(snapshot, address=address)).certificate
    assert not found.exact
    assert f"event {row:,}:" in found.first_difference
    assert found.addresses.alike == 1000
    assert "%" in str(found)


def test_a_segment_of_another_size_is_told():
    snapshot = snapshot_of("transformer_forward_mixed")
    row = np.flatnonzero(snapshot.action == SEGMENT_ALLOC)[7]
    size = snapshot.size.copy()
    size[row] += 2 << 20
    found = replay(replace(snapshot, size=size)).certificate
    assert not found.exact
    assert "a new segment of" in found.first_difference


def test_another_order_of_releases_is_told():
    snapshot = snapshot_of("transformer_training_step")
    rows = np.flatnonzero(snapshot.action == SEGMENT_FREE)[100:102]
    address, size = snapshot.address.copy(), snapshot.size.copy()
    address[rows], size[rows] = address[rows[::-1]], size[rows[::-1]]
    found = replay(replace(snapshot, address=address, size=size)).certificate
    assert not found.exact
    assert "given back" in found.first_difference


def test_without_a_trace_nothing_is_certified():
    snapshot = snapshot_of("cnn_old_schema")
    names = ("action", "address", "size", "stream", "time_us", "trace_pool", "trace_stack")
    bare = replace(snapshot, **{name: getattr(snapshot, name)[:0] for name in names})
    found = replay(bare).certificate
    assert not found.exact
    assert found.blocks.is_exact
