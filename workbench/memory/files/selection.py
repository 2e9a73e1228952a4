"""A stretch of a long recording: what it looks like from afar, and the record of a part of it.

A file of many million events is more than a browser should hold. `overview` says what is in it in
a few hundred numbers, so that a person can choose; `stretch` is the record of the events chosen.
It is cut out of the record of the whole, not read from part of a trace: what was there when it
begins, and how large it was, is known only to somebody who has read everything before and after.
Blocks alive at its start were there before, as in any recording that begins mid-life.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.records import MemoryRecord, Phase, RecordError

MOST_EVENTS = 2_000_000
"""Events that are shown at once; their record has about 90 MB."""
FIRST_LOOK = 500_000
"""Events around the peak that are proposed of a longer recording."""
_POINTS = 400

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]


def overview(record: MemoryRecord) -> dict[str, Any]:
    """What a recording holds, as plain data.

    Returns:
        ``num_events``; ``duration_us``, 0 where the file has no times; ``peak_position`` and
        ``peak_bytes``; ``proposed``: ``[start, end]`` of the events to look at first; ``most``
        events that can be shown at once; and a curve of at most 400 points: ``position`` (events
        before the stretch that a point stands for), ``time_us`` there, and the most ``bytes`` that
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
        "proposed": _around(record.peak_event, num_events),
        "most": MOST_EVENTS,
        "position": first.tolist(),
        "time_us": times[first].tolist(),
        "bytes": np.maximum.reduceat(total, first).tolist(),
    }


def stretch(record: MemoryRecord, start: int, end: int) -> MemoryRecord:
    """The record of the events ``[start, end)`` of ``record``.

    Position ``k`` of its series is position ``start + k`` of the whole: bytes, segments and what is
    free in them are the same, block for block.

    Raises:
        RecordError: there is no such stretch, or it is longer than `MOST_EVENTS`.
    """
    num_events = len(record.event_time_us)
    if not 0 <= start < end <= num_events:
        raise RecordError(
            f"events {start:,} to {end:,} were asked for; the recording has {num_events:,}, and a "
            "stretch ends after it begins"
        )
    if end - start > MOST_EVENTS:
        raise RecordError(
            f"{end - start:,} events were asked for and {MOST_EVENTS:,} are shown at once: choose "
            "a shorter stretch"
        )
    if (start, end) == (0, num_events):
        return record
    window = _Window(start, end)
    blocks = window.alive(record.block_start, record.block_end)
    segments = window.alive(record.segment_start, record.segment_end)
    oom = np.flatnonzero((record.oom_event >= start) & (record.oom_event < end))
    obstacles = _obstacles(record, blocks, oom)
    changes = {
        **_rows(record, "event", np.arange(start, end)),
        **_rows(record, "block", blocks),
        **_rows(record, "segment", segments),
        **_rows(record, "oom", oom),
        "event_time_us": record.event_time_us[start:end] - record.event_time_us[start],
        "block_start": window.begins(record.block_start[blocks]),
        "block_end": window.ends(record.block_end[blocks]),
        "block_pending": window.waits(record.block_pending[blocks]),
        "block_segment": _renumbered(
            record.block_segment[blocks], segments, len(record.segment_start)
        ),
        "segment_start": window.begins(record.segment_start[segments]),
        "segment_end": window.ends(record.segment_end[segments]),
        "oom_event": record.oom_event[oom] - start,
        **obstacles,
        "phases": tuple(window.phases(record.phases)),
    }
    return _with_peak(record, dataclasses.replace(record, **changes), window)


class _Window:
    """Events from ``start`` up to ``end``, which is not among them."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end

    def alive(self, starts: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]) -> Rows:
        """Rows of what is there at some position of the window.

        What the event before ``start`` ended is gone at its first position.
        """
        return np.flatnonzero((starts < self.end) & ((ends < 0) | (ends >= self.start)))

    def begins(self, events: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Numbers within the window; -1 for what was there before."""
        return np.where(events >= self.start, events - self.start, -1)

    def ends(self, events: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Numbers within the window; -1 for what is still there after it."""
        return np.where((events >= 0) & (events < self.end), events - self.start, -1)

    def waits(self, events: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """As `ends`; what waits already when the window begins does so from its first event on."""
        return np.where(events < 0, -1, self.ends(np.maximum(events, self.start)))

    def phases(self, phases: tuple[Phase, ...]) -> list[Phase]:
        """The parts of phases that lie within."""
        found: list[Phase] = []
        for phase in phases:
            first, last = max(phase.start, self.start), min(phase.end, self.end)
            if first < last:
                inside = {"start": first - self.start, "end": last - self.start}
                found.append(dataclasses.replace(phase, **inside))
        return found


def _around(peak: int, num_events: int) -> list[int]:
    """``[start, end]`` of at most `FIRST_LOOK` events with the peak among them."""
    start = max(0, min(peak - FIRST_LOOK // 2, num_events - FIRST_LOOK))
    return [start, min(num_events, start + FIRST_LOOK)]


def _rows(record: MemoryRecord, table: str, rows: Rows) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(record)]
    return {name: getattr(record, name)[rows] for name in names if name.startswith(f"{table}_")}


def _obstacles(record: MemoryRecord, blocks: Rows, oom: Rows) -> dict[str, Any]:
    refusal = _renumbered(record.obstacle_oom, oom, len(record.oom_event))
    block = _renumbered(record.obstacle_block, blocks, len(record.block_start))
    kept = (refusal >= 0) & (block >= 0)
    return {"obstacle_oom": refusal[kept], "obstacle_block": block[kept]}


def _renumbered(pointers: npt.NDArray[np.int32], kept: Rows, num_rows: int) -> Rows:
    """Pointers into a table of which only the rows ``kept`` are left; -1 to what is not."""
    number = np.full(num_rows + 1, -1, dtype=np.int64)  # the last one is where -1 points
    number[kept] = np.arange(len(kept))
    return number[pointers]


def _with_peak(whole: MemoryRecord, part: MemoryRecord, window: _Window) -> MemoryRecord:
    """``part`` with its own peak, and with what it is a part of."""
    total = part.series().sum(axis=0)
    at = int(np.argmax(total))
    num_events = len(whole.event_time_us)
    since = int(whole.event_time_us[window.start]) / 1e6
    notes = [
        f"Events {window.start:,} to {window.end:,} of {num_events:,}, from {since:,.3f} s on."
    ]
    if whole.certificate is not None:
        notes.append("The certificate is the whole trace's.")
    has_peak = window.start <= whole.peak_event + 1 <= window.end
    return dataclasses.replace(
        part,
        notes=(*notes, *part.notes),
        peak_event=at - 1,
        peak_bytes=int(total[at]),
        peak_interval=part.peak_interval if has_peak else (-1, -1),
        reserved_bytes=-1 if whole.reserved_bytes < 0 else int(part.reserved()[at]),
    )
