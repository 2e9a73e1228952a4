"""A range of a long recording: an overview of the whole, and the record of a part of it.

A file of many million events is more than a browser should hold. `overview` describes its contents
in a few hundred numbers, so that the user can choose; `event_range` is the record of the events
chosen. It is a part of the record of the whole, not read from part of a trace: what was there when
it begins, and how large it was, is known only after reading everything before and after.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.memory.reading.record_range import events_between
from workbench.records import MemoryRecord, RecordError

MOST_EVENTS = 2_000_000
"""The largest number of events shown at once; their record has about 90 MB."""
FIRST_LOOK = 500_000
"""The number of events around the peak that are proposed for a longer recording."""
_POINTS = 400


def overview(record: MemoryRecord) -> dict[str, Any]:
    """Return what a recording contains, as plain data.

    Returns:
        ``num_events``; ``duration_us``, 0 if the file has no times; ``peak_position`` and
        ``peak_bytes``; ``proposed``: ``[start, end]`` of the events to look at first; ``most``
        events that can be shown at once; and a curve of at most 400 points: ``position`` (events
        before the range that a point stands for), ``time_us`` there, and the most ``bytes`` that
        were live in it, so that the peak is among them.
    """
    total = record.series().sum(axis=0)
    first = np.unique(
        np.linspace(0, len(total), min(_POINTS, len(total)), endpoint=False).astype(int)
    )
    times = np.append(0, record.event_time_us)
    num_events = len(record.event_time_us)
    return {
        "device": record.device,
        "num_events": num_events,
        "duration_us": int(times[-1]),
        "peak_position": record.peak_event + 1,
        "peak_bytes": record.peak_bytes,
        "proposed": list(first_look(record)),
        "most": MOST_EVENTS,
        "position": first.tolist(),
        "time_us": times[first].tolist(),
        "bytes": np.maximum.reduceat(total, first).tolist(),
    }


def event_range(record: MemoryRecord, start: int, end: int, hint: str = "") -> MemoryRecord:
    """Return the record of the events ``[start, end)`` of ``record`` (`events_between`).

    Its first note says so, followed by ``hint``.

    Raises:
        RecordError: there is no such range, or it is longer than `MOST_EVENTS`.
    """
    num_events = len(record.event_time_us)
    if not 0 <= start < end <= num_events:
        raise RecordError(
            f"events {start:,} to {end:,} were requested; the recording has {num_events:,}, and a "
            "range ends after it begins"
        )
    if end - start > MOST_EVENTS:
        raise RecordError(
            f"{end - start:,} events were requested and {MOST_EVENTS:,} are shown at once: choose "
            "a shorter range"
        )
    if (start, end) == (0, num_events):
        return record
    since = int(record.event_time_us[start]) / 1e6
    notes = [f"Events {start:,} to {end:,} of {num_events:,}, from {since:,.3f} s on.{hint}"]
    if record.certificate is not None:
        notes.append("The certificate is the whole trace's.")
    facts: dict[str, Any] = {"notes": (*notes, *record.notes)}
    if not start <= record.peak_event + 1 <= end:
        facts["peak_interval"] = (-1, -1)
    return events_between(record, start, end, **facts)


def first_look(record: MemoryRecord) -> tuple[int, int]:
    """Return start and end of the events shown first: at most `FIRST_LOOK`, around the peak."""
    num_events = len(record.event_time_us)
    start = max(0, min(record.peak_event - FIRST_LOOK // 2, num_events - FIRST_LOOK))
    return start, min(num_events, start + FIRST_LOOK)


def is_long(record: MemoryRecord) -> bool:
    """Return whether ``record`` has more events than are shown at once."""
    return len(record.event_time_us) > MOST_EVENTS
