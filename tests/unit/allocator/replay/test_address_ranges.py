"""What was held when, worked out backwards; and whose pages a trace only sees going."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.properties.allocator_runs import MIB, Program
from tests.properties.recording import record
from workbench.allocator.replay.address_ranges import ranges_of
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import (
    ALLOC,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
)
from workbench.memory.files.from_snapshot import record_of_snapshot
from workbench.records import POOLS


def expandable(page: int) -> AllocatorSettings:
    return AllocatorSettings(
        expandable_segments=True,
        large_segment_size=page * MIB,
        max_non_split_rounding=page * MIB,
    )


@pytest.mark.parametrize("page", [11, 12, 20, 32])
def test_pages_that_went_are_those_of_the_pool_that_blocks_in_them_were_of(page):
    """Pages of 11 to 18 MiB are large ones, too."""
    seen = set()
    for seed in range(8):
        snapshot = record(Program(seed, expandable(page), capacity=250 * MIB), 300, 300)
        found = record_of_snapshot(snapshot, title="pages")
        for block, segment in enumerate(found.block_segment.tolist()):
            large = found.block_bytes[block] > MIB
            assert found.segment_pool[segment] == POOLS.index("large" if large else "small")
            seen.add((bool(large), bool(found.segment_end[segment] >= 0)))
    assert seen == {(large, gone) for large in (True, False) for gone in (True, False)}


def traced(entries) -> object:
    """A snapshot with no segments in the end, and ``(action, address, size)`` entries."""
    bare = record(Program(0, AllocatorSettings(expandable_segments=True)), 0, 0)
    columns = np.array(entries, dtype=np.int64).reshape(-1, 3)
    none = np.zeros(len(columns), dtype=np.int64)
    return replace(
        bare,
        action=columns[:, 0].astype(np.uint8), address=columns[:, 1], size=columns[:, 2],
        stream=none, time_us=none, trace_pool=none - 1, trace_stack=none - 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "is_large"),
    [
        ([], 1),
        ([(ALLOC, 4 * MIB, MIB)], 0),
        ([(ALLOC, 4 * MIB, MIB + 1)], 1),
        ([(SEGMENT_MAP, 6 * MIB, 2 * MIB)], 0),
        ([(SEGMENT_MAP, 20 * MIB, 2 * MIB)], 1),
    ],
)
def test_what_tells_whose_pages_went(before, is_large):
    snapshot = traced([*before, (SEGMENT_UNMAP, 0, 20 * MIB)])
    found = ranges_of(snapshot, expandable(20)).ranges
    gone = [one for one in found if one.end == len(before)]
    assert {one.is_large for one in gone} == {is_large}
    assert sum(one.num_bytes for one in gone) == 20 * MIB


def test_small_pages_went_where_no_large_one_fits():
    (found,) = ranges_of(traced([(SEGMENT_UNMAP, 0, 22 * MIB)]), expandable(20)).ranges
    assert (found.is_large, found.start, found.end) == (0, -1, 0)


def test_entries_that_the_rest_contradicts_are_counted():
    """A segment that is taken and then not there, and one given back while another lies there."""
    given = [(SEGMENT_ALLOC, 0, 20 * MIB), (SEGMENT_UNMAP, 40 * MIB, 4 * MIB)]
    again = [(SEGMENT_UNMAP, 42 * MIB, 2 * MIB)]
    assert ranges_of(traced(given), expandable(20)).num_lost == 1
    assert ranges_of(traced(given[1:] + again), expandable(20)).num_lost == 1
    assert ranges_of(traced(given + again), expandable(20)).num_lost == 2


def test_a_segment_of_no_bytes_is_none():
    """A file may say so; an allocator never does."""
    entries = [(SEGMENT_FREE, 4 * MIB, 0), (SEGMENT_FREE, 4 * MIB, 0), (SEGMENT_ALLOC, 0, 8 * MIB)]
    found = ranges_of(traced(entries), expandable(20))
    assert (found.ranges, found.num_lost) == ([], 3)
