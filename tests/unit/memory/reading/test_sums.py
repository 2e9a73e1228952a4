"""Where a record's peak is, from its columns."""

from __future__ import annotations

import numpy as np

from workbench.memory.reading.sums import between, peak_fields


def columns(num_events: int, blocks: list[tuple[int, int, int]], segments=((-1, -1, 64),)):
    """Blocks and segments are (start, end, bytes)."""
    found = {"event_kind": [0] * num_events}
    for table, rows in (("block", blocks), ("segment", segments)):
        for at, name in enumerate(("start", "end", "bytes")):
            found[f"{table}_{name}"] = [row[at] for row in rows]
    return found


def test_a_sum_counts_from_after_the_start_to_after_the_end():
    found = between([-1, 0, 1], [1, -1, 2], [1, 10, 100], 4)
    np.testing.assert_array_equal(found, [1, 11, 110, 10])
    np.testing.assert_array_equal(between([], [], [], 2), [0, 0])


def test_the_peak_is_the_first_of_equals_and_may_lie_before_all_events():
    found = peak_fields(columns(4, [(0, 1, 5), (2, 3, 5)]))
    assert found == {"peak_event": 0, "peak_bytes": 5, "reserved_bytes": 64}
    found = peak_fields(columns(2, [(-1, 0, 9), (1, -1, 5)]))
    assert (found["peak_event"], found["peak_bytes"]) == (-1, 9)
    found = peak_fields(columns(0, [], segments=()))
    assert found == {"peak_event": -1, "peak_bytes": 0, "reserved_bytes": 0}


def test_events_that_are_about_no_block_count_too():
    found = peak_fields(columns(3, [(1, 2, 5)], segments=[(0, -1, 20)]))
    assert found == {"peak_event": 1, "peak_bytes": 5, "reserved_bytes": 20}
