"""What a record's blocks and segments add up to, event by event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def between(start: Any, end: Any, value: Any, length: int) -> Ints:
    """The sum of values, each there from after its ``start`` event to after its ``end``.

    Args:
        start: events; -1 for what was there before the first.
        end: events; -1 for what is there after the last.
        value: of each.
        length: of the sum: one more than there are events, as column 0 is before the first.
    """
    begins, ends = (np.asarray(events, dtype=np.int64) + 1 for events in (start, end))
    values = np.asarray(value, dtype=np.int64)
    delta = np.zeros(length, dtype=np.int64)
    np.add.at(delta, begins, values)
    ended = ends > 0
    np.subtract.at(delta, ends[ended], values[ended])
    return np.cumsum(delta)


def peak_fields(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `MemoryRecord` that say where its peak is, from its columns.

    Args:
        columns: those of events, blocks and segments.

    Returns:
        ``peak_event`` of the first highest total, -1 where that is before all events;
        ``peak_bytes``; ``reserved_bytes`` at that moment.
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
