"""Allocations and frees over a stretch of code, as plain columns.

Time is the *event index*: every allocation and every free is one event, numbered from 0. A block
lives from ``block_start`` (the event that allocated it; -1 when it was there before recording) to
``block_end`` (the event that freed it; -1 when it was still there at the end).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from workbench.records.base import F32, I32, I64, U8, Record
from workbench.records.rules import After, Ascending, Index, Least, Length
from workbench.records.source import SourceLine

CATEGORIES = (
    "parameters",
    "optimizer",
    "buffers",
    "gradients",
    "activations",
    "temporaries",
    "unknown",
)
"""Stacking order from the bottom, everywhere. ``buffers`` is buffers + inputs."""

BLOCK_STATES = ("allocated", "pending", "free")
"""State of an allocator block; ``segment_block_state`` holds the index."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A named stretch of a step (``forward``, ``backward``, ``optimizer``): events [start, end)."""

    name: str
    start: Annotated[int, Least(0)]
    end: Annotated[int, After("start")]


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryRecord(Record):
    """What was allocated, when, by what, and how much was live at every event.

    ``bytes`` are requested bytes of storages on CPU and rounded block bytes on CUDA
    (``basis`` says which).
    """

    schema: ClassVar[str] = "workbench.memory/1"
    tables: ClassVar[tuple[str, ...]] = ("event", "block", "segment", "segment_block")

    title: str
    experiment: str | None
    step: int | None
    device: str
    basis: str
    """One sentence: how it was measured and what it leaves out."""
    torch_version: str
    captured_at: float
    notes: tuple[str, ...]

    strings: tuple[str, ...]
    """Table for ``block_op``, ``block_name`` and ``block_module``."""
    sources: tuple[SourceLine, ...]
    phases: Annotated[tuple[Phase, ...], Index("event", end=True)]

    event_time_us: Annotated[I64, Ascending()]
    """Microseconds since recording began, one per event."""

    block_start: Annotated[I32, Index("event", none=True)]
    block_end: Annotated[I32, Index("event", none=True), After("block_start")]
    block_bytes: Annotated[I64, Least(0)]
    block_category: Annotated[U8, Index(CATEGORIES)]
    """Index into `CATEGORIES`."""
    block_op: Annotated[I32, Index("strings")]
    """The operation that allocated it (``aten.convolution``)."""
    block_name: Annotated[I32, Index("strings")]
    """Parameter, buffer or optimizer-state name where it has one."""
    block_module: Annotated[I32, Index("strings")]
    """Module path whose forward (or whose node's backward) allocated it."""
    block_source: Annotated[I32, Index("sources", none=True)]
    """Index into ``sources``, -1 where unknown."""
    block_address: Annotated[I64, Least(-1)]
    """Device address on CUDA, -1 on CPU."""

    peak_event: Annotated[int, Index("event", none=True)]
    """First event at which the live bytes were largest; -1 for an empty record."""
    peak_bytes: Annotated[int, Least(0)]
    reserved_bytes: Annotated[int, Least(-1)]
    """What the allocator held of the device at the peak; -1 where that has no meaning (CPU)."""

    segment_address: I64
    segment_bytes: Annotated[I64, Least(0)]
    segment_stream: I64
    segment_pool: Annotated[U8, Index(("small", "large"))]
    """0 small, 1 large."""
    segment_block_segment: Annotated[I32, Index("segment")]
    """For every allocator block at the end: the row of its segment."""
    segment_block_offset: Annotated[I64, Least(0)]
    segment_block_bytes: Annotated[I64, Least(0)]
    segment_block_state: Annotated[U8, Index(BLOCK_STATES)]
    """Index into `BLOCK_STATES`."""
    segment_block_category: Annotated[U8, Index(CATEGORIES)]

    def series(self) -> npt.NDArray[np.int64]:
        """Live bytes, ``[num_categories, num_events + 1]``; column 0 is before the first event."""
        num_events = len(self.event_time_us)
        delta = np.zeros((len(CATEGORIES), num_events + 1), dtype=np.int64)
        np.add.at(delta, (self.block_category, self.block_start + 1), self.block_bytes)
        freed = self.block_end >= 0
        ends = self.block_end[freed] + 1
        np.subtract.at(delta, (self.block_category[freed], ends), self.block_bytes[freed])
        return np.cumsum(delta, axis=1)

    def at_peak(self) -> dict[str, int]:
        """Live bytes by category at the peak."""
        values = self.series()[:, self.peak_event + 1]
        return {name: int(value) for name, value in zip(CATEGORIES, values, strict=True)}


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryChart(Record):
    """A `MemoryRecord` reduced to what the panel's chart draws: at most 400 points.

    Every point is the maximum of its stretch of events, so the peak is never lost.
    """

    schema: ClassVar[str] = "workbench.memory_chart/1"

    step: int | None
    device: str
    basis: str
    num_points: Annotated[int, Least(0)]
    bytes: Annotated[F32, Length("num_points", len(CATEGORIES))]
    """Flattened ``[num_categories, num_points]``, `CATEGORIES` order."""
    phases: Annotated[tuple[Phase, ...], Index("num_points", end=True)]
    """In points, not events."""
    peak_point: Annotated[int, Index("num_points", none=True)]
    peak_bytes: Annotated[int, Least(0)]
    peak_label: str
    """Where the peak is: ``backward of head``."""
    at_peak: Annotated[tuple[int, ...], Length(len(CATEGORIES))]
    """Bytes by category at the peak."""
    reserved_bytes: Annotated[int, Least(-1)]
    """-1 where there is no such notion."""
