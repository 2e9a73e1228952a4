"""Sums over a record's blocks and segments, event by event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def between(start: Any, end: Any, value: Any, length: int) -> Ints:
    """Return the sum of values, each there from after its ``start`` event to after its ``end``.

    Args:
        start: events; -1 for what was there before the first.
        end: events; -1 for what is there after the last.
        value: the value of each.
        length: the length of the sum: one more than the number of events, because column 0 is
            before the first.
    """
    begins, ends = (np.asarray(events, dtype=np.int64) + 1 for events in (start, end))
    values = np.asarray(value, dtype=np.int64)
    delta = np.zeros(length, dtype=np.int64)
    np.add.at(delta, begins, values)
    ended = ends > 0
    np.subtract.at(delta, ends[ended], values[ended])
    return np.cumsum(delta)


def peak_fields(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `MemoryRecord` that locate its peak, from its columns.

    Args:
        columns: the columns of events, blocks and segments.

    Returns:
        ``peak_event`` of the first highest total, -1 if that is before all events; ``peak_bytes``;
        ``reserved_bytes`` at that moment.
    """
    live, reserved = (
        between(
            *(columns[f"{table}_{name}"] for name in ("start", "end", "bytes")),
            length=len(columns["event_kind"]) + 1,
        )
        for table in ("block", "segment")
    )
    at = int(np.argmax(live))
    return {
        "peak_event": at - 1,
        "peak_bytes": int(live[at]),
        "reserved_bytes": int(reserved[at]),
    }
