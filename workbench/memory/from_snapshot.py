"""From one device of an allocator snapshot to a `MemoryRecord`, on whole columns.

A snapshot does not say what a block was for: every category is unknown, and a block's line is the
innermost frame of its stack that is a person's own Python. Phases are the annotations that the
program gave (``torch.cuda.memory`` records those of ``record_function``), where they do not nest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.allocator.snapshot import OOM, Snapshot
from workbench.experiment.source import source_line
from workbench.memory.lives import Lives, lives_of
from workbench.memory.ranges import segment_columns, segment_rows
from workbench.records import CATEGORIES, Certificate, MemoryRecord, Phase, SourceLine

BASIS = (
    "Recorded by the CUDA allocator: what blocks occupy, rounding included; memory the driver or a "
    "library takes outside the allocator is not in it."
)
_UNKNOWN = CATEGORIES.index("unknown")
_LIBRARY_PARTS = ("site-packages", "dist-packages", "/torch/", "<frozen", "??")

Ints = npt.NDArray[np.int64]


def record_of_snapshot(
    snapshot: Snapshot,
    *,
    title: str,
    sizes: Ints | None = None,
    certificate: Certificate | None = None,
    notes: Sequence[str] = (),
) -> MemoryRecord:
    """The record of one device of a snapshot.

    Args:
        snapshot: as `workbench.allocator.decode` reads it.
        title: what it is called on screen.
        sizes: what a replay found blocks to occupy, see `workbench.memory.lives.lives_of`.
        certificate: what the replay came to.
        notes: further sentences for the reader.
    """
    lives = lives_of(snapshot, sizes)
    columns = allocator_columns(snapshot, lives)
    rows, sources = sources_of(snapshot)
    nothing = np.zeros(len(lives.start), dtype=np.int32)
    peak_event, peak_bytes = peak_of(lives, len(columns["event_kind"]))
    record = MemoryRecord(
        title=title,
        experiment=None,
        step=None,
        device=f"cuda:{snapshot.device}",
        basis=BASIS,
        torch_version="",
        captured_at=time.time(),
        notes=(*_notes(snapshot, lives), *notes),
        strings=("",),
        sources=sources,
        phases=_phases(snapshot, lives.kept),
        block_category=np.full(len(lives.start), _UNKNOWN),
        block_op=nothing,
        block_name=nothing,
        block_module=nothing,
        block_source=rows[lives.stack],
        peak_event=peak_event,
        peak_bytes=peak_bytes,
        reserved_bytes=0,
        certificate=certificate,
        **columns,
    )
    object.__setattr__(record, "reserved_bytes", int(record.reserved()[peak_event + 1]))
    return record


def allocator_columns(snapshot: Snapshot, lives: Lives) -> dict[str, Any]:
    """The columns of a record that the allocator alone knows: events, lives, segments, refusals."""
    event = np.cumsum(lives.kept) - 1
    segments = segment_columns(snapshot, event)
    refused = np.flatnonzero(snapshot.action == OOM)
    return {
        "event_time_us": _times(snapshot.time_us[lives.kept]),
        "event_kind": snapshot.action[lives.kept],
        "block_start": lives.start,
        "block_end": lives.end,
        "block_pending": lives.pending,
        "block_bytes": np.maximum(lives.num_bytes, 0),
        "block_requested": np.maximum(lives.requested, 0),
        "block_address": np.maximum(lives.address, -1),
        "block_segment": segment_rows(segments, lives.address, lives.start),
        "block_stream": lives.stream,
        "oom_event": event[refused],
        "oom_bytes": np.maximum(snapshot.size[refused], 0),
        "oom_free": np.maximum(snapshot.address[refused], -1),
        **segments,
    }


def peak_of(lives: Lives, num_events: int) -> tuple[int, int]:
    """(event, bytes) of the first highest total; the event is -1 when it is before all events."""
    delta = np.zeros(num_events + 1, dtype=np.int64)
    np.add.at(delta, lives.start + 1, lives.num_bytes)
    freed = lives.end >= 0
    np.subtract.at(delta, lives.end[freed] + 1, lives.num_bytes[freed])
    totals = np.cumsum(delta)
    at = int(np.argmax(totals))
    return at - 1, int(totals[at])


def sources_of(snapshot: Snapshot) -> tuple[npt.NDArray[np.int32], tuple[SourceLine, ...]]:
    """Row of the sources for every stack, -1 (which is also the last entry) for none."""
    own = np.array([_is_own(frame.filename) for frame in snapshot.frames], dtype=np.bool_)
    rows = np.full(len(snapshot.stack_start), -1, dtype=np.int32)
    found: dict[int, int] = {}
    bounds = snapshot.stack_start.tolist()
    for stack in range(len(bounds) - 1):
        frames = snapshot.stack_frame[bounds[stack] : bounds[stack + 1]]
        chosen = frames[own[frames]] if len(frames) else frames
        if len(chosen):
            rows[stack] = found.setdefault(int(chosen[0]), len(found))
    if not len(rows):
        rows = np.array([-1], dtype=np.int32)
    lines = (snapshot.frames[frame] for frame in found)
    return rows, tuple(source_line(f.filename, f.line, f.name) for f in lines)


def _is_own(name: str) -> bool:
    is_python = name.endswith(".py") or name.startswith("<ipython")
    return is_python and not any(part in name for part in _LIBRARY_PARTS)


def _times(time_us: Ints) -> Ints:
    """Microseconds since the first event that has a time."""
    known = time_us[time_us > 0]
    began = int(known.min()) if len(known) else 0
    return np.maximum.accumulate(np.maximum(time_us - began, 0)) if len(time_us) else time_us


def _phases(snapshot: Snapshot, kept: npt.NDArray[np.bool_]) -> tuple[Phase, ...]:
    """Annotations that hold events and lie one after the other; what is inside another is not."""
    times = snapshot.time_us[kept]
    open_since: list[tuple[str, int]] = []
    phases: list[Phase] = []
    for note in sorted(snapshot.annotations, key=lambda note: note.time_us):
        at = int(np.searchsorted(times, note.time_us))
        if note.stage == "START":
            open_since.append((note.name, at))
        elif open_since and open_since[-1][0] == note.name:
            name, start = open_since.pop()
            if not open_since and at > start:
                phases.append(Phase(name=name, start=start, end=at))
    return tuple(phases)


def _notes(snapshot: Snapshot, lives: Lives) -> list[str]:
    notes = ["A snapshot does not say what a block was for, so every category is unknown."]
    before = int((lives.start < 0).sum())
    if before and snapshot.num_events:
        notes.append(f"The trace starts mid-life: {before:,} blocks were there before it.")
    if snapshot.num_unknown:
        notes.append(f"{snapshot.num_unknown:,} entries of kinds we do not know are left out.")
    if snapshot.other_devices:
        others = ", ".join(f"cuda:{index}" for index in snapshot.other_devices)
        notes.append(f"The file also holds {others}, not shown.")
    return notes
