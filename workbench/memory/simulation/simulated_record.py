"""A recorded program on a simulated GPU, as a record of its own.

`workbench.memory.simulation.what_if` answers with a few numbers; this returns everything: every
event, every address and every segment, so that a GPU that is not available can be inspected like
one that is. What blocks were for (category, module, line, call) is known from the recording and
stays with them. If the program does not fit, the record ends with the request that was refused, and
names the blocks that were in its way.

Events are numbered anew: they are those of the simulated allocator, and each has the time of the
recorded event that caused it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from workbench.allocator.replay.program import Lifetimes, Outcome, run
from workbench.allocator.simulator.gpus import Gpu
from workbench.allocator.simulator.settings import AllocatorSettings, SettingsError
from workbench.memory.reading.recorded_program import lifetimes_of_record
from workbench.memory.reading.segments import segment_rows
from workbench.memory.reading.sums import peak_fields
from workbench.memory.simulation.allocator_setup import set_up_allocator
from workbench.memory.simulation.event_recorder import (
    EventRecorder,
    Piece,
    RecordingAllocator,
    RecordingDevice,
)
from workbench.memory.simulation.what_if import gpu_of, parsed
from workbench.records import CATEGORIES, GROWTHS, MemoryRecord, Phase

Ints = npt.NDArray[np.int64]

BASIS = (
    "Predicted: what was recorded ({recorded}), requested from a simulated CUDA allocator: block "
    "addresses, sizes and segments are its answers; memory the driver or a library takes outside "
    "the allocator is not in it."
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a prediction states about itself."""

    reasons: tuple[str, ...] = ()
    """Why it may be off, a sentence each."""
    interval: tuple[int, int] | None = None
    """Peak of the reserved bytes, at least and at most; None: that of this run."""
    batch_size: int | None = None
    """Samples in the batch; None: as recorded."""
    basis: str = ""
    """How it was made; by default that a recording was run on a simulated allocator."""


def simulated(
    record: MemoryRecord,
    settings: AllocatorSettings | str = "",
    gpu: Gpu | str | SupportsIndex | None = None,
    lifetimes: Lifetimes | None = None,
    claim: Claim | None = None,
) -> MemoryRecord:
    """Run the program of ``record`` under ``settings`` on ``gpu``: a record marked *predicted*.

    Args:
        record: a recording, or a snapshot.
        settings: as in ``PYTORCH_CUDA_ALLOC_CONF``; the defaults if empty.
        gpu: the name of a GPU, or the bytes that it reports; None: a GPU without a limit.
        lifetimes: the record's blocks with other sizes or times, one row for each block and each
            refused request; by default as recorded.
        claim: what the prediction states about itself.

    Raises:
        SettingsError: the allocator does not accept the settings, or they have no effect here.
        ValueError: no GPU has that name, or so little memory.
    """
    chosen, place = parsed(settings), gpu_of(gpu)
    if chosen.garbage_collection_threshold and place is None:
        raise SettingsError(
            "garbage_collection_threshold acts only on a GPU with a limit: name one"
        )
    if lifetimes is None:
        lifetimes = lifetimes_of_record(record, with_refused=True)
    recorder = EventRecorder(len(lifetimes.start))
    set_up = set_up_allocator(
        record, lifetimes, chosen, place, _AllocatorFactory(recorder), device_type=RecordingDevice
    )
    if set_up.is_restored:
        _begin(recorder, record, set_up.there)
    outcome = run(set_up.program, set_up.allocator, set_up.there, recorder.set_current)
    return _Result(record, lifetimes, recorder, outcome, place).record(chosen, claim or Claim())


@dataclass(frozen=True)
class _AllocatorFactory:
    """Make the allocator that reports to the recorder."""

    recorder: EventRecorder

    def __call__(
        self, settings: AllocatorSettings, device: RecordingDevice, *, allowed: int | None
    ) -> RecordingAllocator:
        return RecordingAllocator(settings, device, allowed=allowed, recorder=self.recorder)


def _begin(recorder: EventRecorder, record: MemoryRecord, there: dict[int, int]) -> None:
    """Restore what was there before, each at its address."""
    for row, address in there.items():
        recorder.row_at[address] = row
        recorder.address[row], recorder.size[row] = address, record.block_bytes[row]
    for row in np.flatnonzero(record.segment_start < 0).tolist():
        address = int(record.segment_address[row])
        recorder.held[address] = Piece(
            -1,
            address,
            int(record.segment_bytes[row]),
            int(record.segment_stream[row]),
            is_large=bool(record.segment_pool[row]),
            is_expandable=bool(record.segment_expandable[row]),
            private=int(record.segment_private[row]),
        )


class _Result:
    """Convert recorded events into a record."""

    def __init__(
        self,
        record: MemoryRecord,
        lifetimes: Lifetimes,
        recorder: EventRecorder,
        outcome: Outcome,
        gpu: Gpu | None,
    ) -> None:
        self.source, self.lifetimes, self.recorder = record, lifetimes, recorder
        self.outcome, self.gpu = outcome, gpu
        self.refused: list[int] = []
        if outcome.failure is not None:
            recorder.set_current(-1, outcome.failed_event)
            self.refused.append(recorder.add_event("oom", last=True))
        self.rows = np.flatnonzero(recorder.size >= 0)
        """Blocks that were allocated."""

    def record(self, settings: AllocatorSettings, claim: Claim) -> MemoryRecord:
        source, outcome = self.source, self.outcome
        columns = self._events() | self._blocks() | self._segments() | self._shortage()
        address, start = columns["block_address"], columns["block_start"]
        columns["block_segment"] = segment_rows(columns, address, start)
        peak = outcome.peak_reserved
        return MemoryRecord(
            title=source.title,
            experiment=source.experiment,
            step=source.step,
            device=source.device if source.device.startswith("cuda") else "cuda",
            basis=claim.basis or BASIS.format(recorded=_decapitalized(source.basis)),
            torch_version=source.torch_version,
            captured_at=time.time(),
            notes=source.notes,
            batch_size=source.batch_size if claim.batch_size is None else claim.batch_size,
            is_predicted=True,
            card="" if self.gpu is None else self.gpu.name,
            card_bytes=-1 if self.gpu is None else self.gpu.usable_bytes,
            settings=settings.words,
            peak_interval=claim.interval or (peak, peak),
            reasons=claim.reasons,
            remedies=(),
            sources=source.sources,
            phases=self._phases(),
            call_parent=source.call_parent,
            call_source=source.call_source,
            certificate=None,
            **self._descriptions(),
            **columns,
            **peak_fields(columns),
        )

    def _events(self) -> dict[str, Any]:
        origins = np.array(self.recorder.origins, dtype=np.int64)
        times = self.source.event_time_us
        known = len(times) > 0
        return {
            "event_kind": self.recorder.kinds,
            "event_time_us": times[origins] if known else np.zeros(len(origins), dtype=np.int64),
        }

    def _blocks(self) -> dict[str, Any]:
        recorder, rows = self.recorder, self.rows
        columns = {"start": recorder.start, "end": recorder.end, "pending": recorder.pending}
        columns |= {"address": recorder.address, "bytes": recorder.size}
        columns |= {"requested": self.lifetimes.requested, "stream": self.lifetimes.stream}
        return {f"block_{name}": column[rows] for name, column in columns.items()}

    def _descriptions(self) -> dict[str, Any]:
        """Return what blocks were for; for requests that had been refused this is not known."""
        source, num_more = self.source, len(self.lifetimes.start) - len(self.source.block_start)
        strings = source.strings if "" in source.strings else (*source.strings, "")
        nothing = {
            "category": CATEGORIES.index("unknown"),
            "op": strings.index(""),
            "name": strings.index(""),
            "module": strings.index(""),
            "source": -1,
            "call": -1,
            "growth": GROWTHS.index("unknown"),
        }
        columns: dict[str, Any] = {"strings": strings}
        for name, value in nothing.items():
            column = getattr(source, f"block_{name}")
            columns[f"block_{name}"] = np.append(column, np.full(num_more, value))[self.rows]
        return columns

    def _segments(self) -> dict[str, Any]:
        pieces = self.recorder.all_pieces()
        return {
            "segment_start": [piece.start for piece in pieces],
            "segment_end": [piece.end for piece in pieces],
            "segment_address": [piece.address for piece in pieces],
            "segment_bytes": [piece.size for piece in pieces],
            "segment_stream": [piece.stream for piece in pieces],
            "segment_pool": [int(piece.is_large) for piece in pieces],
            "segment_expandable": [int(piece.is_expandable) for piece in pieces],
            "segment_private": [piece.private for piece in pieces],
        }

    def _shortage(self) -> dict[str, Any]:
        failure, found = self.outcome.failure, self.outcome.shortage
        new_row = {row: number for number, row in enumerate(self.rows.tolist())}
        obstacles = [new_row[row] for row in self.outcome.in_the_way.tolist()]
        free = -1
        if failure is not None and self.gpu is not None:
            free = max(0, self.gpu.usable_bytes - failure.reserved)
        return {
            "oom_event": self.refused,
            "oom_bytes": [failure.requested] if failure is not None else [],
            "oom_free": [free] * len(self.refused),
            "oom_largest": [-1 if found is None else found.largest_free] * len(self.refused),
            "obstacle_oom": [0] * len(obstacles),
            "obstacle_block": obstacles,
        }

    def _phases(self) -> tuple[Phase, ...]:
        phases = self.source.phases
        starts, ends = (
            self.recorder.number_of(np.array([getattr(p, side) for p in phases], dtype=np.int64))
            for side in ("start", "end")
        )
        bounds = zip(phases, starts.tolist(), ends.tolist(), strict=True)
        return tuple(
            Phase(name=phase.name, start=start, end=end)
            for phase, start, end in bounds
            if end > start
        )


def _decapitalized(sentence: str) -> str:
    return (sentence[:1].lower() + sentence[1:]).rstrip(".")
