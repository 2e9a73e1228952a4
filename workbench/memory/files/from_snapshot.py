"""From one device of an allocator snapshot to a `MemoryRecord`, on whole columns.

A snapshot does not say what a block was for: every category is unknown. Its stacks say what
requested it (`workbench.memory.files.from_stacks`). Phases are the annotations that the program
made (``torch.cuda.memory`` records those of ``record_function``), if they are not nested.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.allocator.shortage import Shortage
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.snapshot.snapshot import Snapshot
from workbench.memory.files.from_stacks import CUT, stack_columns
from workbench.memory.files.refused_requests import refusal_columns
from workbench.memory.reading.lifetimes import Lifetimes, lifetimes_of
from workbench.memory.reading.measured import NOTHING_PREDICTED, nothing_of_calls
from workbench.memory.reading.segments import segment_columns, segment_rows
from workbench.memory.reading.sums import peak_fields
from workbench.records import CATEGORIES, Certificate, MemoryRecord, Phase

BASIS = (
    "Recorded by the CUDA allocator: what blocks occupy, rounding included; memory the driver or a "
    "library takes outside the allocator is not in it."
)
UNRECORDED = (
    "The snapshot holds no trace: what was allocated is known, not when or by what. Call "
    "torch.cuda.memory._record_memory_history() before the code that is to be seen, and take the "
    "snapshot after it."
)
_UNKNOWN = CATEGORIES.index("unknown")

Ints = npt.NDArray[np.int64]


def record_of_snapshot(
    snapshot: Snapshot,
    *,
    title: str,
    sizes: Ints | None = None,
    certificate: Certificate | None = None,
    shortages: Mapping[int, Shortage] | None = None,
    notes: Sequence[str] = (),
) -> MemoryRecord:
    """Return the record of one device of a snapshot.

    Args:
        snapshot: a snapshot from `workbench.allocator.snapshot.decode`.
        title: the title shown on screen.
        sizes: the sizes of blocks as a replay found them, see
            `workbench.memory.reading.lifetimes.lifetimes_of`.
        certificate: the result of the replay.
        shortages: entry of the trace -> what the replay found in the way of a refused request.
        notes: further sentences for the reader.
    """
    lifetimes = lifetimes_of(snapshot, sizes)
    columns = allocator_columns(snapshot, lifetimes, shortages)
    stacks = stack_columns(snapshot)
    nothing = np.zeros(len(lifetimes.start), dtype=np.int32)
    return MemoryRecord(
        title=title,
        experiment=None,
        step=None,
        device=f"cuda:{snapshot.device}",
        basis=BASIS,
        torch_version="",
        captured_at=time.time(),
        notes=(*_notes(snapshot, lifetimes), *((CUT,) if stacks.is_cut else ()), *notes),
        strings=("",),
        phases=_phases(snapshot, lifetimes.kept),
        block_category=np.full(len(lifetimes.start), _UNKNOWN),
        block_op=nothing,
        block_name=nothing,
        block_module=nothing,
        certificate=certificate,
        batch_size=-1,
        **NOTHING_PREDICTED,
        **{**nothing_of_calls(len(lifetimes.start)), **stacks.of_blocks(lifetimes.stack)},
        **columns,
        **peak_fields(columns),
    )


def allocator_columns(
    snapshot: Snapshot, lifetimes: Lifetimes, shortages: Mapping[int, Shortage] | None = None
) -> dict[str, Any]:
    """Return what only the allocator knows: settings; columns of events, blocks and segments."""
    event = np.cumsum(lifetimes.kept) - 1
    segments = segment_columns(snapshot, event)
    return {
        "settings": AllocatorSettings.of_snapshot_or_default(snapshot.settings).words,
        "event_time_us": _times(snapshot.time_us[lifetimes.kept]),
        "event_kind": snapshot.action[lifetimes.kept],
        "block_start": lifetimes.start,
        "block_end": lifetimes.end,
        "block_pending": lifetimes.pending,
        "block_bytes": np.maximum(lifetimes.num_bytes, 0),
        "block_requested": np.maximum(lifetimes.requested, 0),
        "block_address": np.maximum(lifetimes.address, -1),
        "block_segment": segment_rows(segments, lifetimes.address, lifetimes.start),
        "block_stream": lifetimes.stream,
        **refusal_columns(snapshot, lifetimes, shortages or {}),
        **segments,
    }


def _times(time_us: Ints) -> Ints:
    """Return microseconds since the first event that has a time."""
    known = time_us[time_us > 0]
    began = int(known.min()) if len(known) else 0
    return np.maximum.accumulate(np.maximum(time_us - began, 0)) if len(time_us) else time_us


def _phases(snapshot: Snapshot, kept: npt.NDArray[np.bool_]) -> tuple[Phase, ...]:
    """Return annotations that contain events and follow each other; nested ones are left out."""
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


def _notes(snapshot: Snapshot, lifetimes: Lifetimes) -> list[str]:
    notes = ["A snapshot does not say what a block was for, so every category is unknown."]
    before = int((lifetimes.start < 0).sum())
    if not snapshot.num_events:
        notes.append(UNRECORDED)
    elif before:
        notes.append(
            f"The trace starts while the program runs: {before:,} blocks were there before it."
        )
    if snapshot.num_unknown:
        notes.append(f"{snapshot.num_unknown:,} entries of kinds we do not know are left out.")
    if snapshot.other_devices:
        others = ", ".join(f"cuda:{index}" for index in snapshot.other_devices)
        notes.append(f"The file also holds {others}, not shown.")
    return notes
