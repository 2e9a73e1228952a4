"""From a finished recording to a `MemoryRecord`: ticks become event numbers, names a table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from workbench.experiment.source import source_line
from workbench.memory.attribution import Line
from workbench.memory.blocks import Block, Mark
from workbench.memory.categories import categorize
from workbench.memory.cuda import AllocatorHistory, describe_blocks
from workbench.memory.recorder import Recorder
from workbench.memory.trace import Columns, blocks_of, reserved_at, segment_columns
from workbench.records import MemoryRecord, Phase

CPU_BASIS = (
    "Measured: requested bytes of every tensor storage on {device} as operations made and released "
    "them; scratch memory inside a kernel is not seen."
)

CUDA_BASIS = (
    "Measured by the CUDA allocator: requested bytes rounded up to 512 B, workspaces included; "
    "memory the driver or a library takes outside the allocator is not seen."
)


def build_record(
    recorder: Recorder,
    history: AllocatorHistory,
    *,
    title: str,
    device: str | None = None,
    experiment: str | None = None,
    step: int | None = None,
    notes: Iterable[str] = (),
) -> MemoryRecord:
    """The record of what ``recorder`` saw on ``device`` (default: the one that matters most).

    Where ``history`` listened to a CUDA allocator, its events are the record and the recorder says
    what they were for. Turns the blocks' ticks into event numbers: call it once, at the end.
    """
    chosen = device or main_device(recorder.blocks)
    columns = history.stop(chosen)
    # Frees of this moment on other threads would change ``end`` under our hands.
    recorder.close()
    blocks = [block for block in recorder.blocks if block.device == chosen]
    phases = _renumber(blocks, recorder.marks)
    basis = CPU_BASIS.format(device=chosen.upper())
    if columns is not None:
        seen, blocks = blocks, blocks_of(columns)
        describe_blocks(blocks, seen)
        phases, basis = _phases_by_time(blocks, recorder.marks), CUDA_BASIS
    return record_of(
        blocks,
        phases,
        columns,
        title=title,
        experiment=experiment,
        step=step,
        device=chosen,
        basis=basis,
        started_ns=recorder.started_ns,
        notes=(*notes, *_notes(recorder, chosen)),
    )


def record_of(
    blocks: Sequence[Block],
    phases: Sequence[Phase],
    allocator: Columns | None = None,
    *,
    started_ns: int,
    notes: Sequence[str],
    **facts: Any,
) -> MemoryRecord:
    """A record of blocks with event numbers; ``allocator`` adds segments and reserved bytes."""
    categories = categorize(blocks, phases)
    table = _Table()
    sources: dict[Line, int] = {}
    columns: dict[str, Any] = {
        "block_start": [block.start for block in blocks],
        "block_end": [block.end for block in blocks],
        "block_bytes": [block.num_bytes for block in blocks],
        "block_category": categories,
        "block_op": [table.row(block.op) for block in blocks],
        "block_name": [table.row(block.name) for block in blocks],
        "block_module": [table.row(block.module) for block in blocks],
        "block_source": [
            -1 if block.line is None else sources.setdefault(block.line, len(sources))
            for block in blocks
        ],
        "block_address": [-1 if block.device == "cpu" else block.address for block in blocks],
    }
    peak_event, peak_bytes = peak_of(blocks)
    return MemoryRecord(
        torch_version=torch.__version__,
        captured_at=time.time(),
        notes=tuple(notes),
        strings=table.strings,
        sources=tuple(source_line(*line) for line in sources),
        phases=tuple(phases),
        event_time_us=_times_us(blocks, started_ns),
        peak_event=peak_event,
        peak_bytes=peak_bytes,
        reserved_bytes=-1 if allocator is None else reserved_at(allocator, peak_event),
        **facts,
        **columns,
        **(_no_segments() if allocator is None else segment_columns(allocator, blocks, categories)),
    )


def _no_segments() -> dict[str, Any]:
    names = ("address", "bytes", "stream", "pool", "block_segment", "block_offset")
    names += ("block_bytes", "block_state", "block_category")
    return {f"segment_{name}": [] for name in names}


def main_device(blocks: Sequence[Block]) -> str:
    """The accelerator if one was used, else the CPU; of several the one with the most bytes."""
    totals: dict[str, int] = {}
    for block in blocks:
        totals[block.device] = totals.get(block.device, 0) + block.num_bytes
    accelerators = [name for name in totals if name != "cpu"]
    return max(accelerators, key=totals.__getitem__) if accelerators else "cpu"


def peak_of(blocks: Sequence[Block]) -> tuple[int, int]:
    """(event, bytes) of the first highest total; the event is -1 when it is before all events."""
    num_events = count_events(blocks)
    delta = np.zeros(num_events + 1, dtype=np.int64)
    for block in blocks:
        delta[block.start + 1] += block.num_bytes
        if block.end >= 0:
            delta[block.end + 1] -= block.num_bytes
    totals = np.cumsum(delta)
    column = int(np.argmax(totals))
    return column - 1, int(totals[column])


def count_events(blocks: Sequence[Block]) -> int:
    """Allocations plus frees."""
    return sum((block.start >= 0) + (block.end >= 0) for block in blocks)


def _times_us(blocks: Sequence[Block], started_ns: int) -> npt.NDArray[np.int64]:
    times = np.zeros(count_events(blocks), dtype=np.int64)
    for block in blocks:
        if block.start >= 0:
            times[block.start] = block.started_ns
        if block.end >= 0:
            times[block.end] = block.ended_ns
    return np.maximum.accumulate((times - started_ns) // 1000)


def _renumber(blocks: Sequence[Block], marks: Sequence[Mark]) -> list[Phase]:
    """Replace ticks by event numbers without gaps, and marks by phases."""
    ticks = sorted(tick for block in blocks for tick in (block.start, block.end) if tick >= 0)
    number = {tick: row for row, tick in enumerate(ticks)}
    for block in blocks:
        block.start, block.end = number.get(block.start, -1), number.get(block.end, -1)
    bounds = np.searchsorted(ticks, [mark.tick for mark in marks]).tolist()
    return _phases(marks, bounds, len(ticks))


def _phases_by_time(blocks: Sequence[Block], marks: Sequence[Mark]) -> list[Phase]:
    times = sorted(
        time_ns
        for block in blocks
        for time_ns, event in ((block.started_ns, block.start), (block.ended_ns, block.end))
        if event >= 0
    )
    bounds = np.searchsorted(times, [mark.time_ns for mark in marks]).tolist()
    return _phases(marks, bounds, len(times))


def _phases(marks: Sequence[Mark], bounds: Sequence[int], num_events: int) -> list[Phase]:
    phases: list[Phase] = []
    # Without marks there are no bounds, and the last end pairs with nothing.
    for mark, start, end in zip(marks, bounds, [*bounds[1:], num_events], strict=False):
        if mark.phase and end > start:
            phases.append(Phase(name=mark.phase, start=start, end=end))
    return phases


def _notes(recorder: Recorder, device: str) -> list[str]:
    notes: list[str] = []
    if recorder.failure:
        notes.append(f"The recording failed before the end, only frees follow: {recorder.failure}")
    elsewhere = {block.device for block in recorder.blocks} - {device}
    if elsewhere:
        notes.append(f"Memory on {', '.join(sorted(elsewhere))} is left out.")
    if recorder.uncounted:
        kinds = ", ".join(sorted(recorder.uncounted))
        notes.append(f"Tensors without a storage that can be measured are left out: {kinds}.")
    return notes


class _Table:
    """Strings with their row; row 0 is the empty string."""

    def __init__(self) -> None:
        self._rows = {"": 0}

    def row(self, text: str) -> int:
        return self._rows.setdefault(text, len(self._rows))

    @property
    def strings(self) -> tuple[str, ...]:
        return tuple(self._rows)
