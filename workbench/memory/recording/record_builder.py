"""From a finished recording to a `MemoryRecord`: ticks become event numbers, names a table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from workbench.allocator.snapshot.snapshot import Snapshot
from workbench.memory.files.from_snapshot import allocator_columns
from workbench.memory.files.from_stacks import CUT, stack_columns
from workbench.memory.files.replayed_snapshot import replayed
from workbench.memory.reading.call_tree import Calls, Line
from workbench.memory.reading.lifetimes import Lifetimes, lifetimes_of
from workbench.memory.reading.measured import NOTHING_PREDICTED, nothing_of_calls
from workbench.memory.reading.sums import peak_fields
from workbench.memory.recording.categories import categorize
from workbench.memory.recording.cuda_history import (
    OVERFLOWED,
    AllocatorHistory,
    begins_late,
    describe_blocks,
)
from workbench.memory.recording.recorder import Recorder
from workbench.memory.recording.storage_lifetimes import Block, Mark
from workbench.memory.recording.storages import columns_without_allocator, since
from workbench.records import Certificate, MemoryRecord, Phase
from workbench.records.source import source_line
from workbench.torch_private.self_check import notes_of

CPU_BASIS = (
    "Measured: requested bytes of every tensor storage on {device} as operations made and released "
    "them; scratch memory inside a kernel is not seen."
)

CUDA_BASIS = (
    "Measured by the CUDA allocator: what blocks occupy, rounding and workspaces included; memory "
    "the driver or a library takes outside the allocator is not seen."
)


def build_record(
    recorder: Recorder,
    history: AllocatorHistory,
    *,
    title: str,
    device: str | None = None,
    experiment: str | None = None,
    step: int | None = None,
    batch_size: int = -1,
    notes: Iterable[str] = (),
) -> MemoryRecord:
    """Return the record of what ``recorder`` saw on ``device`` (default: `main_device`).

    If ``history`` listened to a CUDA allocator, its events are the record and the recorder adds
    what they were for. Turns the blocks' ticks into event numbers: call it once, at the end.
    """
    chosen = device or main_device(recorder.blocks)
    snapshot = history.stop(chosen)
    # Frees that other threads make at this moment would change ``end`` meanwhile.
    recorder.close()
    blocks = [block for block in recorder.blocks if block.device == chosen]
    phases = _renumber(blocks, recorder.marks)
    facts: dict[str, Any] = {"basis": CPU_BASIS.format(device=chosen.upper())}
    if snapshot is not None:
        found = replayed(snapshot)
        is_cut = history.may_be_cut and begins_late(snapshot.time_us * 1000, blocks)
        notes = (*notes, *found.notes, *([OVERFLOWED] if is_cut else []))
        lifetimes = lifetimes_of(snapshot, found.sizes)
        columns = allocator_columns(snapshot, lifetimes, found.shortages)
        seen, blocks = blocks, blocks_of(snapshot, lifetimes, recorder.attribution.calls)
        describe_blocks(blocks, seen)
        times_ns = snapshot.time_us[lifetimes.kept] * 1000
        columns["event_time_us"] = since(times_ns, recorder.started_ns)
        phases = _phases_by_time(times_ns, recorder.marks)
        facts = {
            "basis": CUDA_BASIS,
            "allocator": columns,
            "certificate": found.certificate,
        }
    return record_of(
        blocks,
        phases,
        title=title,
        experiment=experiment,
        step=step,
        device=chosen,
        batch_size=batch_size,
        started_ns=recorder.started_ns,
        calls=recorder.attribution.calls,
        notes=(*notes, *_notes(recorder, chosen)),
        **facts,
    )


def record_of(
    blocks: Sequence[Block],
    phases: Sequence[Phase],
    allocator: Mapping[str, Any] | None = None,
    *,
    started_ns: int,
    notes: Sequence[str],
    calls: Calls | None = None,
    batch_size: int = -1,
    certificate: Certificate | None = None,
    **facts: Any,
) -> MemoryRecord:
    """Return a record of blocks whose ``start`` and ``end`` are event numbers.

    ``allocator`` holds the columns that only the allocator knows, one row per block.
    """
    table = _Table()
    sources: dict[Line, int] = {}
    calls = calls or Calls()
    columns: dict[str, Any] = {
        "block_category": categorize(blocks, phases),
        "block_op": [table.row(block.op) for block in blocks],
        "block_name": [table.row(block.name) for block in blocks],
        "block_module": [table.row(block.module) for block in blocks],
        **nothing_of_calls(len(blocks)),
        "block_source": [
            -1 if block.line is None else sources.setdefault(block.line, len(sources))
            for block in blocks
        ],
        "block_call": [block.call for block in blocks],
        "call_parent": calls.parents,
        "call_source": [sources.setdefault(line, len(sources)) for line in calls.lines],
    }
    known = columns_without_allocator(blocks, started_ns) if allocator is None else dict(allocator)
    peak = peak_fields(known)
    if allocator is None:
        peak["reserved_bytes"] = -1
    return MemoryRecord(
        torch_version=torch.__version__,
        captured_at=time.time(),
        notes=tuple(notes),
        strings=table.strings,
        sources=tuple(source_line(*line) for line in sources),
        phases=tuple(phases),
        certificate=certificate,
        batch_size=batch_size,
        **NOTHING_PREDICTED,
        **facts,
        **columns,
        **known,
        **peak,
    )


def blocks_of(snapshot: Snapshot, lifetimes: Lifetimes, calls: Calls) -> list[Block]:
    """Return the allocator's blocks as objects that can be described; times are in ns.

    Their stacks are added to ``calls``.
    """
    device = f"cuda:{snapshot.device}"
    times = [*(snapshot.time_us[lifetimes.kept] * 1000).tolist(), 0]
    stacks = stack_columns(snapshot)
    lines = [Line(line.filename, line.line, line.function) for line in stacks.sources]
    offset = calls.extend(stacks.parent.tolist(), [lines[row] for row in stacks.source.tolist()])
    calls.is_cut = calls.is_cut or stacks.is_cut
    found: list[Block] = []
    columns = (lifetimes.num_bytes, lifetimes.address, lifetimes.start, lifetimes.end)
    rows = zip(*(column.tolist() for column in (*columns, lifetimes.stack)), strict=True)
    for num_bytes, address, start, end, stack in rows:
        block = Block(num_bytes, device, address)
        line, call = int(stacks.line[stack]), int(stacks.call[stack])
        block.call = -1 if call < 0 else call + offset
        block.line = None if line < 0 else lines[line]
        block.start, block.end = start, end
        block.started_ns, block.ended_ns = times[start], times[end]
        found.append(block)
    return found


def main_device(blocks: Sequence[Block]) -> str:
    """Return the accelerator with the most bytes, or the CPU if no accelerator was used."""
    totals: dict[str, int] = {}
    for block in blocks:
        totals[block.device] = totals.get(block.device, 0) + block.num_bytes
    accelerators = [name for name in totals if name != "cpu"]
    return max(accelerators, key=totals.__getitem__) if accelerators else "cpu"


def _renumber(blocks: Sequence[Block], marks: Sequence[Mark]) -> list[Phase]:
    """Replace ticks by event numbers without gaps, and marks by phases."""
    ticks = sorted(tick for block in blocks for tick in (block.start, block.end) if tick >= 0)
    number = {tick: row for row, tick in enumerate(ticks)}
    for block in blocks:
        block.start, block.end = number.get(block.start, -1), number.get(block.end, -1)
    bounds = np.searchsorted(ticks, [mark.tick for mark in marks]).tolist()
    return _phases(marks, bounds, len(ticks))


def _phases_by_time(times_ns: npt.NDArray[np.int64], marks: Sequence[Mark]) -> list[Phase]:
    bounds = np.searchsorted(np.sort(times_ns), [mark.time_ns for mark in marks]).tolist()
    return _phases(marks, bounds, len(times_ns))


def _phases(marks: Sequence[Mark], bounds: Sequence[int], num_events: int) -> list[Phase]:
    phases: list[Phase] = []
    # Without marks there are no bounds, and the last end pairs with nothing.
    for mark, start, end in zip(marks, bounds, [*bounds[1:], num_events], strict=False):
        if mark.phase and end > start:
            phases.append(Phase(name=mark.phase, start=start, end=end))
    return phases


def _notes(recorder: Recorder, device: str) -> list[str]:
    notes = [*notes_of("memory")]
    if recorder.attribution.calls.is_cut:
        notes.append(CUT)
    if recorder.failure:
        notes.append(f"The recording failed before the end, only frees follow: {recorder.failure}")
    notes += [
        f"Not everything that {holder} holds could be named: {why}"
        for holder, why in recorder.unnamed.items()
    ]
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
