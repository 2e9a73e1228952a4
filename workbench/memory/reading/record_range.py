"""A range of a record, the same as the whole at every event, with what is there when it begins.

Blocks alive at its start were there before, as in any recording that begins while a program runs.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.memory.reading.sums import peak_fields
from workbench.records import MemoryRecord, Phase

Events = npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]


def from_event(record: MemoryRecord, event: int) -> MemoryRecord:
    """Return ``record`` from ``event`` on.

    Args:
        record: a recording, measured or predicted.
        event: the first event that is kept; one past the last to keep none.
    """
    return events_between(record, event, len(record.event_kind))


def events_between(record: MemoryRecord, start: int, end: int, **facts: Any) -> MemoryRecord:
    """Return the events ``[start, end)`` of ``record``, with a time and a peak of their own.

    Time begins with the first event kept. Position ``k`` of the part's series is position ``start +
    k`` of the whole: bytes, segments and what is free in them are the same, block for block.

    Args:
        record: a recording, measured or predicted.
        start: the first event that is kept.
        end: one past the last; not before ``start``.
        facts: other fields that differ from the whole.
    """
    window = _Window(start, end)
    blocks = window.alive(record.block_start, record.block_end)
    segments = window.alive(record.segment_start, record.segment_end)
    oom = np.flatnonzero((record.oom_event >= start) & (record.oom_event < end))
    columns = {
        **_rows(record, "event", np.arange(start, end)),
        **_rows(record, "block", blocks),
        **_rows(record, "segment", segments),
        **_rows(record, "oom", oom),
        **_obstacles(record, blocks, oom),
    }
    for name in ("block_start", "segment_start"):
        columns[name] = window.begins(columns[name])
    for name in ("block_end", "segment_end"):
        columns[name] = window.ends(columns[name])
    columns["block_pending"] = window.waits(columns["block_pending"])
    columns["block_segment"] = _renumbered(
        columns["block_segment"], segments, len(record.segment_start)
    )
    columns["oom_event"] = columns["oom_event"] - start
    times = columns["event_time_us"]
    columns["event_time_us"] = times - times[:1].sum()  # of the first event, if there is one
    columns |= peak_fields(columns)
    if record.reserved_bytes < 0:  # there is no allocator to reserve anything
        columns["reserved_bytes"] = -1
    phases = tuple(window.phases(record.phases))
    return dataclasses.replace(record, phases=phases, **columns, **facts)


class _Window:
    """Events from ``start`` up to ``end``, which is not among them."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end

    def alive(self, starts: Events, ends: Events) -> Rows:
        """Return the rows of what is there at some position of the window.

        What the event before ``start`` ended is no longer there at its first position.
        """
        return np.flatnonzero((starts < self.end) & ((ends < 0) | (ends >= self.start)))

    def begins(self, events: Events) -> Events:
        """Return event numbers within the window; -1 for what was there before."""
        return np.maximum(events - self.start, -1)

    def ends(self, events: Events) -> Events:
        """Return event numbers within the window; -1 for what is still there after it."""
        return np.where((events >= 0) & (events < self.end), events - self.start, -1)

    def waits(self, events: Events) -> Events:
        """As `ends`; what already waits when the window begins waits from its first event."""
        return np.where(events < 0, -1, self.ends(np.maximum(events, self.start)))

    def phases(self, phases: tuple[Phase, ...]) -> list[Phase]:
        """Return the parts of phases that are inside the window."""
        found: list[Phase] = []
        for phase in phases:
            first, last = max(phase.start, self.start), min(phase.end, self.end)
            if first < last:
                inside = {"start": first - self.start, "end": last - self.start}
                found.append(dataclasses.replace(phase, **inside))
        return found


def _rows(record: MemoryRecord, table: str, rows: Rows) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(record)]
    return {name: getattr(record, name)[rows] for name in names if name.startswith(f"{table}_")}


def _obstacles(record: MemoryRecord, blocks: Rows, oom: Rows) -> dict[str, Any]:
    refusal = _renumbered(record.obstacle_oom, oom, len(record.oom_event))
    block = _renumbered(record.obstacle_block, blocks, len(record.block_start))
    kept = (refusal >= 0) & (block >= 0)
    return {"obstacle_oom": refusal[kept], "obstacle_block": block[kept]}


def _renumbered(pointers: Events, kept: Rows, num_rows: int) -> Rows:
    """Renumber pointers into a table that keeps only the rows ``kept``; -1 for the others."""
    number = np.full(num_rows + 1, -1, dtype=np.int64)  # the last one is where -1 points
    number[kept] = np.arange(len(kept))
    return number[pointers]
