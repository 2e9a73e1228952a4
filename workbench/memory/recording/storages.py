"""Columns of a record of storages, if no allocator reports segments: a recording on the CPU.

It contains only allocations and frees; what was requested is what is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.memory.recording.storage_lifetimes import Block
from workbench.records import EVENT_KINDS

_SEGMENT = ("start", "end", "address", "bytes", "stream", "pool", "expandable", "private")


def columns_without_allocator(blocks: Sequence[Block], started_ns: int) -> dict[str, Any]:
    """Return the allocator's columns for blocks on a device without an allocator to query."""
    sizes = [block.num_bytes for block in blocks]
    kinds = np.full(count_events(blocks), EVENT_KINDS.index("alloc"))
    kinds[[block.end for block in blocks if block.end >= 0]] = EVENT_KINDS.index("free")
    nowhere = [-1] * len(blocks)
    return {
        "settings": "",
        "event_time_us": _times_us(blocks, started_ns),
        "event_kind": kinds,
        "block_start": [block.start for block in blocks],
        "block_end": [block.end for block in blocks],
        "block_pending": nowhere,
        "block_bytes": sizes,
        "block_requested": sizes,
        "block_address": [-1 if block.device == "cpu" else block.address for block in blocks],
        "block_segment": nowhere,
        "block_stream": [0] * len(blocks),
        **{f"segment_{name}": [] for name in _SEGMENT},
        **{f"oom_{name}": [] for name in ("event", "bytes", "free", "largest")},
        **{f"obstacle_{name}": [] for name in ("oom", "block")},
    }


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
    return since(times, started_ns)


def since(times_ns: npt.NDArray[np.int64], started_ns: int) -> npt.NDArray[np.int64]:
    """Return microseconds since the recording began, never decreasing."""
    return np.maximum.accumulate((times_ns - started_ns) // 1000)
