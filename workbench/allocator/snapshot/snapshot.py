"""One device of an allocator snapshot, as columns.

Terms are the allocator's own (``c10/cuda/CUDACachingAllocator.h``): a *segment* is memory allocated
from the driver, a *block* a part of a segment, a *pool* where free blocks are kept. Addresses and
streams are unsigned 64-bit in a file and signed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.allocator.snapshot.event_names import (
    ACTIONS,
    ALLOC,
    ALLOCATED,
    FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    PENDING,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    SNAPSHOT,
    STATES,
)

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

__all__ = [
    "ACTIONS", "ALLOC", "ALLOCATED", "FREE", "FREE_COMPLETED", "FREE_REQUESTED", "I32", "I64",
    "OOM", "PENDING", "SEGMENT_ALLOC", "SEGMENT_FREE", "SEGMENT_MAP", "SEGMENT_UNMAP", "SNAPSHOT",
    "STATES", "U8", "Annotation", "Frame", "Snapshot",
]  # fmt: skip


class Frame(NamedTuple):
    """One line of a stack; the innermost comes first."""

    filename: str
    line: int
    name: str


class Annotation(NamedTuple):
    """A named moment (``torch.cuda.memory._record_memory_history`` with annotations)."""

    time_us: int
    stage: str
    """``START`` or ``END``."""
    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """The state of one device's allocator when a snapshot was taken, and its trace up to then."""

    device: int
    other_devices: tuple[int, ...]
    """Other devices in the file that hold anything."""
    settings: Mapping[str, Any]
    """``allocator_settings`` as in the file; empty in files that predate it."""
    annotations: tuple[Annotation, ...]
    num_unknown: int
    """Entries of the trace with an action that `ACTIONS` does not name."""

    # The trace, oldest first.
    action: U8
    address: I64
    """Address of the block or segment; for an ``oom``, the bytes that were free on the device."""
    size: I64
    """Requested bytes of a block, bytes of a segment, rounded bytes of an ``oom``."""
    stream: I64
    time_us: I64
    """0 in files without times."""
    trace_pool: I32
    """Row of `pools`; -1 if the file does not say."""
    trace_stack: I32
    """Row of a stack (`stack_start`); -1 without one."""

    # The segments, then their blocks in order of address.
    segment_address: I64
    segment_bytes: I64
    segment_stream: I64
    segment_is_large: U8
    segment_is_expandable: U8
    segment_pool: I32
    """Row of `pools`; -1 if the file does not say."""
    segment_stack: I32
    block_segment: I32
    """Row of its segment."""
    block_address: I64
    block_bytes: I64
    block_requested: I64
    """Requested bytes. A free block keeps those of its last owner."""
    block_state: U8
    block_stack: I32

    pools: tuple[tuple[int, int], ...]
    """Ids of private pools, and ``(0, 0)`` for the default one."""
    frames: tuple[Frame, ...]
    stack_start: I64
    """Where each stack begins in `stack_frame`, and one past the end: ``[num_stacks + 1]``."""
    stack_frame: I32
    """Rows of `frames`, stack after stack, innermost first."""

    @property
    def num_events(self) -> int:
        """Entries of the trace."""
        return len(self.action)
