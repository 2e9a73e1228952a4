"""An allocator's events become blocks whose totals agree with its own segments."""

from __future__ import annotations

import pytest

from workbench.memory.trace import blocks_of, reserved_at, rounded, segment_columns
from workbench.memory.unpickle import columns_of

BASE = 0x7F0000000000
MIB = 1 << 20


def event(action: str, offset: int, size: int, time_us: int) -> dict:
    return {"action": action, "addr": BASE + offset, "size": size, "stream": 0, "time_us": time_us}


def snapshot() -> dict:
    """1000 B there before; 600 B come and go; 2000 B come and stay, unsplit, in 2,560 B."""
    blocks = [
        {"address": BASE, "size": 1024, "requested_size": 1000, "state": "active_allocated"},
        {"address": BASE + 1024, "size": 2560, "requested_size": 2000, "state": "active_allocated"},
        {
            "address": BASE + 3584,
            "size": 2 * MIB - 3584,
            "requested_size": 600,
            "state": "inactive",
        },
    ]
    segment = {
        "device": 0, "address": BASE, "total_size": 2 * MIB, "stream": 0, "segment_type": "small",
        "blocks": blocks,
    }  # fmt: skip
    trace = [
        event("alloc", 1024, 600, 10),
        event("free_requested", 1024, 600, 11),
        event("free_completed", 1024, 600, 12),
        event("segment_alloc", 16 * MIB, 20 * MIB, 13),
        event("alloc", 1024, 2000, 14),
        event("segment_free", 16 * MIB, 20 * MIB, 15),
    ]
    return {"segments": [segment], "device_traces": [trace]}


def test_requests_round_to_512_bytes():
    assert [rounded(n) for n in (1, 511, 512, 513, 1024, 1025)] == [512, 512, 512, 1024, 1024, 1536]


def test_blocks_and_their_lives():
    blocks = blocks_of(columns_of(snapshot()))
    assert [(b.address - BASE, b.num_bytes, b.start, b.end) for b in blocks] == [
        (0, 1024, -1, -1),
        (1024, 1024, 0, 1),
        (1024, 2560, 2, -1),
    ]


def test_a_block_freed_but_never_allocated_was_there_before():
    data = {"segments": [], "device_traces": [[event("free_completed", 0, 700, 1)]]}
    (block,) = blocks_of(columns_of(data))
    assert (block.start, block.end, block.num_bytes) == (-1, 0, 1024)


@pytest.mark.parametrize(("at", "mib"), [(-1, 2), (0, 2), (1, 2), (2, 22)])
def test_reserved_memory_is_traced_back_from_the_end(at: int, mib: int):
    # event 2 is the last allocation; the segment freed after it was still there
    assert reserved_at(columns_of(snapshot()), at) == mib * MIB


def test_segments_hold_their_blocks_by_offset():
    columns = columns_of(snapshot())
    found = segment_columns(columns, blocks_of(columns), [3, 5, 4])
    assert found["segment_block_offset"].tolist() == [0, 1024, 3584]
    assert found["segment_block_state"].tolist() == [0, 0, 2]
    assert found["segment_block_category"] == [3, 4, 6]


def test_the_oldest_schema_has_no_block_addresses():
    blocks = [
        {"size": 1024, "state": "active_allocated", "history": [{"addr": BASE, "real_size": 900}]},
        {"size": 512, "state": "inactive"},
        {"size": 512, "state": "active_allocated"},
    ]
    segment = {"device": 0, "address": BASE, "total_size": 2048, "blocks": blocks}
    columns = columns_of({"segments": [segment]})
    assert [a - BASE for a in columns["block_address"]] == [0, 1024, 1536]
    assert list(columns["block_requested"]) == [900, 512, 512]
