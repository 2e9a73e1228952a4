"""The record of a step or a validation on a simulated GPU, often one that it could not serve.

The requests of a step were recorded; the answers of the simulated GPU follow from its state when
the step began, because the simulator is deterministic. So the step is run once more by
`workbench.memory.simulation.simulated_record`, from that state up to the request that was refused,
and the result has every event, address and segment, and the blocks that were in the way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from workbench.allocator.replay.program import Lifetimes
from workbench.allocator.replay.start_state import StartSegment
from workbench.memory.reading.recorded_program import lifetimes_of_record
from workbench.memory.reading.text import format_bytes, gpu_in_words
from workbench.memory.recording.cuda_history import AllocatorHistory
from workbench.memory.recording.record_builder import build_record
from workbench.memory.recording.storage_lifetimes import Block
from workbench.memory.simulated_gpu.gpu_recorder import GpuRecorder, Refused
from workbench.memory.simulated_gpu.held_segments import segment_columns_of
from workbench.memory.simulation.simulated_record import Claim, simulated
from workbench.records import EVENT_KINDS, MemoryRecord

BASIS = (
    "Simulated: storages that operations of this run made and released on the {device}, requested "
    "from a simulated CUDA allocator with {usable} available. What a GPU's own kernels and "
    "libraries allocate in addition is not in it."
)


@dataclass(kw_only=True)
class Work:
    """A step, or a batch of a validation, that runs on a simulated GPU."""

    recorder: GpuRecorder
    held: list[StartSegment]
    """What the simulated GPU held when the work began."""
    when: str
    """``step 5``, or ``validation after step 5``."""
    experiment: str
    step: int
    batch_size: int
    """Samples in its batch, of which the last batch of an epoch may have fewer; -1 if unknown."""
    is_refused: bool = False
    """Whether it ended because a request was refused."""
    built: MemoryRecord | None = None
    """Its record, once requested."""

    def end(
        self, error: BaseException | None, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """End the work, possibly with ``error``, which is propagating: name what it left behind.

        What is allocated after that, by code that cleans up, does not mean that the work continued;
        what is refused during the naming was not requested by the work.
        """
        self.is_refused = self.ended_by(error)
        refused = self.recorder.gpu.refused
        of_work = len(refused)
        with suppress(torch.OutOfMemoryError):
            self.recorder.settle(model, optimizer)
        del refused[of_work:]

    def ended_by(self, error: BaseException | None) -> bool:
        """Return whether ``error`` is the last refusal, and the code did not continue after it."""
        refused = self.recorder.gpu.refused
        return bool(refused) and refused[-1].error == id(error)

    def record(self) -> MemoryRecord:
        """Return the record, up to the request that ended the work if one did."""
        if self.built is None:
            self.built = _record(self)
        return self.built


def _record(work: Work) -> MemoryRecord:
    """Return the record; the recording is used up."""
    recorder, ledger = work.recorder, work.recorder.gpu
    last = ledger.refused[-1] if work.is_refused else None
    passed = ledger.refused[:-1] if work.is_refused else ledger.refused
    if last is not None:
        _drop_after(recorder, last.tick)
    blocks = [block for block in ledger.blocks if block.device == ledger.device]
    emptied = _events_at(blocks, [refused.tick for refused in passed])
    record = build_record(
        recorder,
        AllocatorHistory(),
        title=f"{work.experiment}, {work.when}" if last is None else _title(work, last),
        device=ledger.device,
        experiment=work.experiment,
        step=work.step,
        batch_size=work.batch_size,
        notes=[*([] if last is None else [_requested(last)]), *map(_continued, passed)],
    )
    record = _with_start(record, work, blocks)
    if last is not None:
        record = _with_refused(record, recorder, last)
    usable = format_bytes(ledger.limit.gpu.usable_bytes)
    claim = Claim(basis=BASIS.format(device=ledger.device.upper(), usable=usable))
    lifetimes = _with_emptied(lifetimes_of_record(record, with_refused=True), emptied)
    return simulated(record, ledger.limit.settings, ledger.limit.gpu, lifetimes, claim)


def _drop_after(recorder: GpuRecorder, tick: int) -> None:
    """Remove what came after the refused request: the step was being abandoned."""
    ledger = recorder.gpu
    ledger.blocks[:] = [block for block in ledger.blocks if block.start < tick]
    recorder.marks[:] = [mark for mark in recorder.marks if mark.tick < tick]
    for block in ledger.blocks:
        if block.end > tick:
            block.end = -1
        in_flight = block.end < 0 <= block.start and not block.category
        if in_flight and _phase_at(recorder, block.start) in ("backward", "optimizer"):
            block.category = "temporaries"  # not meant to stay, had the step continued


def _phase_at(recorder: GpuRecorder, tick: int) -> str:
    row = bisect_left(recorder.marks, tick, key=lambda mark: mark.tick) - 1
    return recorder.marks[row].phase if row >= 0 else ""


def _events_at(blocks: Sequence[Block], ticks: Sequence[int]) -> list[int]:
    """Return the event that each of ``ticks`` comes before."""
    known = sorted(tick for block in blocks for tick in (block.start, block.end) if tick >= 0)
    return [bisect_left(known, tick) for tick in ticks]


def _with_start(record: MemoryRecord, work: Work, blocks: Sequence[Block]) -> MemoryRecord:
    """Return ``record``, whose rows are ``blocks``, with their addresses before the first event."""
    places = {
        block.address: (row, block.size)
        for row, segment in enumerate(work.held)
        for block in segment.blocks
    }
    found = [places.get(block.address) if block.start < 0 else None for block in blocks]
    columns: dict[str, Any] = {
        "block_address": [b.address if at else -1 for b, at in zip(blocks, found, strict=True)],
        "block_segment": [at[0] if at else -1 for at in found],
        "block_bytes": [at[1] if at else b.num_bytes for b, at in zip(blocks, found, strict=True)],
        "is_predicted": True,
        "settings": work.recorder.gpu.limit.settings.words,
        "peak_interval": (0, 0),
        **segment_columns_of(work.held),
    }
    return replace(record, **columns)


def _with_refused(record: MemoryRecord, recorder: GpuRecorder, last: Refused) -> MemoryRecord:
    """Return ``record`` with the refused request as its last event."""
    num_events = len(record.event_kind)
    before_us = int(record.event_time_us[-1]) if num_events else 0
    at_us = max(before_us, (last.block.started_ns - recorder.started_ns) // 1000)
    columns: dict[str, Any] = {
        "event_kind": np.append(record.event_kind, EVENT_KINDS.index("oom")),
        "event_time_us": np.append(record.event_time_us, at_us),
        "oom_event": [num_events],
        "oom_bytes": [last.block.num_bytes],
        "oom_free": [-1],
        "oom_largest": [-1],
    }
    return replace(record, **columns)


def _with_emptied(lifetimes: Lifetimes, emptied: Sequence[int]) -> Lifetimes:
    """Add that a refused request released everything unused, even if the code continued."""
    return replace(lifetimes, emptied=np.union1d(lifetimes.emptied, emptied).astype(np.int32))


def _title(work: Work, last: Refused) -> str:
    size, block = format_bytes(last.block.num_bytes), last.block
    where = f" in {block.module}" if block.module else ""
    gpu = gpu_in_words(work.recorder.gpu.limit.gpu.name)
    phase = _phase_at(work.recorder, last.tick)
    during = f" ({phase})" if phase else ""
    return f"Out of memory: {size} requested{where}{during}, {work.when}, on {gpu}"


def _requested(last: Refused) -> str:
    block = last.block
    line = f", {block.line.function}, line {block.line.line}" if block.line is not None else ""
    return f"{block.num_bytes:,} B were requested by {block.op or 'an operation'}{line}."


def _continued(refused: Refused) -> str:
    return (
        f"A request for {format_bytes(refused.block.num_bytes)} was refused before, and the code "
        "continued without it."
    )
