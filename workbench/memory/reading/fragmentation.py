"""Where reserved memory went, divided with no remainder at every event.

The memory that an allocator holds of a device is at any moment the sum of

- ``requested``: requested by the program and not freed;
- ``rounding``: added by rounding to 512 bytes (or to a division of a power of two);
- ``slack``: too little to be split off, so it stayed with its block;
- ``waiting``: blocks that the program freed and another stream may still use;
- ``pinned``: free, in a segment that also holds a block: only useful to requests that fit;
- ``other_stream``: the same, in segments of a stream that is not the one most memory belongs to;
- ``other_pool``: free in a private pool (a CUDA graph's, a ``MemPool``);
- ``releasable``: free segments (of an expandable one, pages): what ``empty_cache`` releases.

Computed from the lifetimes of blocks and segments, on whole columns: a segment is releasable from
the event that frees its last block to the event that allocates a block in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from workbench.allocator.simulator.rounding import round_sizes
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.memory.reading.releasable_units import units_of
from workbench.memory.reading.sums import between
from workbench.records import MemoryRecord

Ints = npt.NDArray[np.int64]

PARTS = (
    "requested",
    "rounding",
    "slack",
    "waiting",
    "pinned",
    "other_stream",
    "other_pool",
    "releasable",
)
"""Rows of the result of `fragmentation`, in the same order everywhere."""


def fragmentation(record: MemoryRecord, settings: AllocatorSettings | None = None) -> Ints:
    """Return bytes of each part, ``[len(PARTS), num_events + 1]``; column 0 is before all events.

    The columns add up to ``record.reserved()``; a recording on the CPU has no segments, and all its
    bytes are requested.

    Args:
        record: a recording or a snapshot.
        settings: determine how sizes were rounded and how large a page is; the default settings if
            None.
    """
    chosen = settings or AllocatorSettings()
    parts = np.zeros((len(PARTS), len(record.event_time_us) + 1), dtype=np.int64)
    _fill_used(record, chosen, parts)
    if not len(record.segment_bytes):
        return parts
    units = units_of(record, chosen.large_segment_size)
    for name, segments in _kinds(record):
        blocks = (record.block_segment >= 0) & segments[record.block_segment]
        free = _bytes_present(record, "segment", segments) - _bytes_present(record, "block", blocks)
        whole = np.zeros_like(free) if name == "other_pool" else units.unused(segments)
        parts[PARTS.index(name)] = free - whole
        parts[PARTS.index("releasable")] += whole
    return parts


def _kinds(record: MemoryRecord) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Return the name of a kind of free bytes, and which segments they are in."""
    private = record.segment_private > 0
    other = ~private & (record.segment_stream != _main_stream(record))
    return [("pinned", ~private & ~other), ("other_stream", other), ("other_pool", private)]


def _fill_used(record: MemoryRecord, settings: AllocatorSettings, parts: Ints) -> None:
    """Fill in the parts that belong to blocks."""
    size, requested = record.block_bytes, record.block_requested
    rounded = np.minimum(round_sizes(requested, settings), size)
    if not len(record.segment_bytes):
        rounded = requested = size
    freed = np.where(record.block_pending >= 0, record.block_pending, record.block_end)
    made_of = (
        ("requested", requested),
        ("rounding", rounded - requested),
        ("slack", size - rounded),
    )
    for name, value in made_of:
        parts[PARTS.index(name)] = between(record.block_start, freed, value, parts.shape[1])
    waits = record.block_pending >= 0
    parts[PARTS.index("waiting")] = between(
        record.block_pending[waits], record.block_end[waits], size[waits], parts.shape[1]
    )


def _bytes_present(record: MemoryRecord, table: str, chosen: npt.NDArray[np.bool_]) -> Ints:
    """Return the bytes of the chosen rows of ``table`` that are there, after each event."""
    start, end, value = (
        getattr(record, f"{table}_{name}")[chosen] for name in ("start", "end", "bytes")
    )
    return between(start, end, value, len(record.event_time_us) + 1)


def _main_stream(record: MemoryRecord) -> int:
    """Return the stream to which most of the default pool's memory belongs."""
    default = record.segment_private == 0
    streams, rows = np.unique(record.segment_stream[default], return_inverse=True)
    if not len(streams):
        return 0
    held = np.bincount(rows, weights=record.segment_bytes[default].astype(np.float64))
    return int(streams[int(np.argmax(held))])
