"""The last part of a record, with what is there when it begins."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.memory.reading.units import between
from workbench.records import MemoryRecord, Phase


def from_event(record: MemoryRecord, event: int) -> MemoryRecord:
    """``record`` from ``event`` on, where its time begins; what lives by then was there before.

    Args:
        record: a recording, measured or predicted.
        event: the first that is kept; one past the last for none.
    """
    blocks = _there(record.block_end, event)
    segments = _there(record.segment_end, event)
    columns = _columns(record, "block", blocks) | _columns(record, "segment", segments)
    for name in ("block_start", "block_end", "block_pending", "segment_start", "segment_end"):
        columns[name] = _moved(columns[name], event)
    if event < len(record.event_kind):  # who waits by then does so from the first event on
        waits = (record.block_pending >= 0) & (record.block_pending < event)
        columns["block_pending"][waits[blocks]] = 0
    if len(record.segment_bytes):
        new_row = np.cumsum(segments) - 1
        row = columns["block_segment"]
        columns["block_segment"] = np.where(row >= 0, new_row[np.maximum(row, 0)], -1)
    refused = record.oom_event >= event
    columns |= _columns(record, "oom", refused) | _obstacles(record, refused, blocks)
    columns["oom_event"] = record.oom_event[refused] - event
    columns |= _columns(record, "event", np.arange(len(record.event_kind)) >= event)
    times = columns["event_time_us"]
    columns["event_time_us"] = times - times[:1].sum()  # of the first kept, where there is one
    length = len(columns["event_kind"]) + 1
    live = between(columns["block_start"], columns["block_end"], columns["block_bytes"], length)
    at = int(np.argmax(live))
    found = dataclasses.replace(
        record,
        phases=_phases(record, event),
        peak_event=at - 1,
        peak_bytes=int(live[at]),
        **columns,
    )
    if record.reserved_bytes >= 0:
        object.__setattr__(found, "reserved_bytes", int(found.reserved()[at]))
    return found


def _there(end: npt.NDArray[Any], event: int) -> npt.NDArray[np.bool_]:
    return (end < 0) | (end >= event)


def _columns(record: MemoryRecord, table: str, kept: npt.NDArray[np.bool_]) -> dict[str, Any]:
    return {
        field.name: getattr(record, field.name)[kept]
        for field in dataclasses.fields(record)
        if field.name.startswith(f"{table}_")
    }


def _moved(events: npt.NDArray[Any], event: int) -> npt.NDArray[Any]:
    """Events counted from ``event``; those before it, and none, as -1."""
    return np.maximum(events - event, -1)


def _obstacles(
    record: MemoryRecord, refused: npt.NDArray[np.bool_], blocks: npt.NDArray[np.bool_]
) -> dict[str, Any]:
    new_oom, new_block = np.cumsum(refused) - 1, np.cumsum(blocks) - 1
    kept = refused[record.obstacle_oom] & blocks[record.obstacle_block]
    return {
        "obstacle_oom": new_oom[record.obstacle_oom[kept]],
        "obstacle_block": new_block[record.obstacle_block[kept]],
    }


def _phases(record: MemoryRecord, event: int) -> tuple[Phase, ...]:
    return tuple(
        Phase(name=phase.name, start=max(phase.start - event, 0), end=phase.end - event)
        for phase in record.phases
        if phase.end > event
    )
