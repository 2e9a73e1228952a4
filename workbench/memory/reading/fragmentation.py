"""Where reserved memory went, split without a rest at every event.

What an allocator holds of a device is at any moment the sum of

- ``requested``: what the program asked for and has not given back;
- ``rounding``: what rounding to 512 bytes (or to a division of a power of two) added to it;
- ``slack``: what was too little to be split off and stayed with a block;
- ``waiting``: blocks that the program freed and another stream may still use;
- ``pinned``: free, in a segment that also holds a block: of use to requests that fit, and to
  nobody else;
- ``other_stream``: the same, of a stream that is not the one most memory belongs to;
- ``other_pool``: free in a private pool (a CUDA graph's, a ``MemPool``);
- ``releasable``: free segments (of an expandable one, pages): what ``empty_cache`` gives back.

Worked out from the lives of blocks and segments, on whole columns: a segment is releasable from the
event that frees its last block to the event that takes its first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from workbench.allocator.simulator.rounding import round_sizes
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.memory.reading.sums import between
from workbench.memory.reading.units import units_of
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
"""Rows of what `fragmentation` gives, in this order everywhere."""


def fragmentation(record: MemoryRecord, settings: AllocatorSettings | None = None) -> Ints:
    """Bytes of every part, ``[len(PARTS), num_events + 1]``; column 0 is before the first event.

    The columns add up to ``record.reserved()``; a recording on CPU has no segments, and all its
    bytes are requested.

    Args:
        record: a recording or a snapshot.
        settings: what sizes were rounded by and how large a page is; by default the defaults.
    """
    chosen = settings or AllocatorSettings()
    parts = np.zeros((len(PARTS), len(record.event_time_us) + 1), dtype=np.int64)
    _fill_used(record, chosen, parts)
    if not len(record.segment_bytes):
        return parts
    units = units_of(record, chosen.large_segment_size)
    for name, segments in _kinds(record):
        blocks = (record.block_segment >= 0) & segments[record.block_segment]
        free = _lives(record, "segment", segments) - _lives(record, "block", blocks)
        whole = np.zeros_like(free) if name == "other_pool" else units.unused(segments)
        parts[PARTS.index(name)] = free - whole
        parts[PARTS.index("releasable")] += whole
    return parts


def _kinds(record: MemoryRecord) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """What free bytes are called, by whose segments they lie in."""
    private = record.segment_private > 0
    other = ~private & (record.segment_stream != _main_stream(record))
    return [("pinned", ~private & ~other), ("other_stream", other), ("other_pool", private)]


def _fill_used(record: MemoryRecord, settings: AllocatorSettings, parts: Ints) -> None:
    """What blocks are made of."""
    size, asked = record.block_bytes, record.block_requested
    rounded = np.minimum(round_sizes(asked, settings), size)
    if not len(record.segment_bytes):
        rounded = asked = size
    freed = np.where(record.block_pending >= 0, record.block_pending, record.block_end)
    made_of = (
        ("requested", asked),
        ("rounding", rounded - asked),
        ("slack", size - rounded),
    )
    for name, value in made_of:
        parts[PARTS.index(name)] = between(record.block_start, freed, value, parts.shape[1])
    waits = record.block_pending >= 0
    parts[PARTS.index("waiting")] = between(
        record.block_pending[waits], record.block_end[waits], size[waits], parts.shape[1]
    )


def _lives(record: MemoryRecord, table: str, chosen: npt.NDArray[np.bool_]) -> Ints:
    """Bytes of the chosen rows of ``table`` that are there, after each event."""
    start, end, value = (
        getattr(record, f"{table}_{name}")[chosen] for name in ("start", "end", "bytes")
    )
    return between(start, end, value, len(record.event_time_us) + 1)


def _main_stream(record: MemoryRecord) -> int:
    """The stream to which most of the default pool's memory belongs."""
    default = record.segment_private == 0
    streams, rows = np.unique(record.segment_stream[default], return_inverse=True)
    if not len(streams):
        return 0
    held = np.bincount(rows, weights=record.segment_bytes[default].astype(np.float64))
    return int(streams[int(np.argmax(held))])
