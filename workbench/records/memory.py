"""What an allocator did during a range of code, as plain columns.

Time is the *event index*: everything the allocator did is one event, numbered from 0; what kind of
event is in ``event_kind``. A recording on CPU has allocations and frees only; a CUDA allocator also
takes segments from the driver, gives them back, and runs out of memory.

Blocks and segments are *lives*: a block lives from ``block_start`` (the event that allocated it; -1
when it was there before recording) to ``block_end`` (the event that freed it; -1 when it was still
there at the end), and a segment likewise. What lay where at any event follows from the lives that
hold it; no map is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from workbench.records.base import F32, I32, I64, U8, Record
from workbench.records.certificate import Certificate
from workbench.records.remedy import Remedy
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

EVENT_KINDS = (
    "alloc",
    "free_requested",
    "free",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
)
"""What an event was; ``event_kind`` holds the index. ``free`` is the completed one; a request is an
event of its own only where another event is between the two, because a stream still used the
block."""

POOLS = ("small", "large")
"""The allocator's pools; ``segment_pool`` holds the index. Blocks up to 1 MiB are in small."""

GROWTHS = ("fixed", "batch", "unknown", "square", "steep")
"""How a block's size goes with the batch; ``block_growth`` holds the index. ``steep`` is faster
than the batch, and not known to be its square."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A named range of a step (``forward``, ``backward``, ``optimizer``): events [start, end)."""

    name: str
    start: Annotated[int, Least(0)]
    end: Annotated[int, After("start")]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MemoryRecord(Record):
    """What was allocated, when, by what, and how much was live at every event.

    ``block_bytes`` are requested bytes of storages on CPU and what a block occupies on CUDA
    (``basis`` says which).
    """

    schema: ClassVar[str] = "workbench.memory/3"
    tables: ClassVar[tuple[str, ...]] = ("event", "block", "call", "segment", "oom", "obstacle")

    title: str
    experiment: str | None
    step: int | None
    device: str
    basis: str
    """One sentence: how it was measured and what it leaves out."""
    torch_version: str
    captured_at: float
    notes: tuple[str, ...]
    batch_size: Annotated[int, Least(-1)]
    """Samples in the step's batch; -1 where that is unknown."""

    is_predicted: bool
    """Whether an allocator was simulated: ``segment_...`` and addresses are then its answers."""
    card: str
    """Name of the GPU that is predicted or simulated; empty for none."""
    card_bytes: Annotated[int, Least(-1)]
    """What the allocator may use of that GPU; -1 where there is none."""
    settings: str
    """Settings of the allocator that was recorded or simulated, as in ``PYTORCH_CUDA_ALLOC_CONF``;
    empty for the defaults, and where there is none (CPU) or it is unknown."""
    peak_interval: Annotated[tuple[int, ...], Length(2)]
    """Peak of the bytes reserved, at least and at most, of a prediction; ``(-1, -1)`` else."""
    reasons: tuple[str, ...]
    """Why a prediction may be off, a sentence each."""

    strings: tuple[str, ...]
    """Table for ``block_op``, ``block_name`` and ``block_module``."""
    sources: tuple[SourceLine, ...]
    phases: Annotated[tuple[Phase, ...], Index("event", end=True)]

    event_time_us: Annotated[I64, Ascending()]
    """Microseconds since recording began, one per event; all 0 where the file has no times."""
    event_kind: Annotated[U8, Index(EVENT_KINDS)]
    """Index into `EVENT_KINDS`."""

    block_start: Annotated[I32, Index("event", none=True)]
    block_end: Annotated[I32, Index("event", none=True), After("block_start")]
    block_pending: Annotated[I32, Index("event", none=True)]
    """The event that requested the block to be freed where it stayed *pending* until ``block_end``,
    because a stream still used it; -1 where it was freed at once, or not at all."""
    block_bytes: Annotated[I64, Least(0)]
    """What it occupies: the request, rounded up, and a rest too small to be split off."""
    block_requested: Annotated[I64, Least(0)]
    """What was requested."""
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
    block_call: Annotated[I32, Index("call", none=True)]
    """The innermost call that allocated it, a row of the tree of calls; -1 where unknown."""
    block_growth: Annotated[U8, Index(GROWTHS)]
    """Index into `GROWTHS`: whether it grows with the batch."""
    block_address: Annotated[I64, Least(-1)]
    """Device address on CUDA, -1 on CPU."""
    block_segment: Annotated[I32, Index("segment", none=True)]
    """Row of the segment in which it was allocated; -1 on CPU or where that is unknown."""
    block_stream: I64
    """The stream it was allocated for; 0 is the default stream."""

    call_parent: Annotated[I32, Index("call", none=True, earlier=True)]
    """The call that made this one; -1 for an outermost one."""
    call_source: Annotated[I32, Index("sources")]
    """The line that it is at."""

    peak_event: Annotated[int, Index("event", none=True)]
    """First event at which the live bytes were largest; -1 for an empty record."""
    peak_bytes: Annotated[int, Least(0)]
    reserved_bytes: Annotated[int, Least(-1)]
    """What the allocator held of the device at the peak; -1 where that has no meaning (CPU)."""

    segment_start: Annotated[I32, Index("event", none=True)]
    """The event that took it from the driver (or mapped it); -1 when it was there before."""
    segment_end: Annotated[I32, Index("event", none=True), After("segment_start")]
    """The event that gave it back (or unmapped it); -1 when it was still there at the end."""
    segment_address: I64
    segment_bytes: Annotated[I64, Least(0)]
    segment_stream: I64
    segment_pool: Annotated[U8, Index(POOLS)]
    """Index into `POOLS`."""
    segment_expandable: Annotated[U8, Index(("no", "yes"))]
    """1 for a range mapped in an expandable segment; ranges that touch are one segment."""
    segment_private: Annotated[I32, Least(0)]
    """0 in the default pool, else the number of a private pool (a CUDA graph's, a ``MemPool``)."""

    oom_event: Annotated[I32, Index("event")]
    oom_bytes: Annotated[I64, Least(0)]
    """What was requested and refused."""
    oom_free: Annotated[I64, Least(-1)]
    """What the device still had free; -1 where the trace does not say."""
    oom_largest: Annotated[I64, Least(-1)]
    """The largest free block that the request could have been given; -1 where that is unknown."""
    obstacle_oom: Annotated[I32, Index("oom")]
    """A refused request, and in ``obstacle_block`` a live block of the cheapest that would have
    served it, were they freed: a run of neighbours, or all of some segments, which then go back."""
    obstacle_block: Annotated[I32, Index("block")]
    remedies: tuple[Remedy, ...]
    """What was tried on a run that did not fit, the cheapest that fits first."""

    certificate: Certificate | None
    """None for a recording on CPU, and where no replay was made."""

    def series(self) -> npt.NDArray[np.int64]:
        """Live bytes, ``[num_categories, num_events + 1]``; column 0 is before the first event."""
        num_events = len(self.event_time_us)
        delta = np.zeros((len(CATEGORIES), num_events + 1), dtype=np.int64)
        np.add.at(delta, (self.block_category, self.block_start + 1), self.block_bytes)
        freed = self.block_end >= 0
        ends = self.block_end[freed] + 1
        np.subtract.at(delta, (self.block_category[freed], ends), self.block_bytes[freed])
        return np.cumsum(delta, axis=1)

    def reserved(self) -> npt.NDArray[np.int64]:
        """Bytes of all segments, ``[num_events + 1]``, as in `series`; zeros on CPU."""
        delta = np.zeros(len(self.event_time_us) + 1, dtype=np.int64)
        np.add.at(delta, self.segment_start + 1, self.segment_bytes)
        ended = self.segment_end >= 0
        np.subtract.at(delta, self.segment_end[ended] + 1, self.segment_bytes[ended])
        return np.cumsum(delta)

    def at_peak(self) -> dict[str, int]:
        """Live bytes by category at the peak."""
        values = self.series()[:, self.peak_event + 1]
        return {name: int(value) for name, value in zip(CATEGORIES, values, strict=True)}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MemoryChart(Record):
    """A `MemoryRecord` reduced to what the panel's chart draws: at most 400 points.

    Every point is the maximum of its range of events, so the peak is never lost.
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
