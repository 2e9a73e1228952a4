"""The simulated allocator that a recorded program runs on, with what was there before.

Under the settings of the recording, the segments that were there before are restored as they were;
otherwise, and if it is not known where blocks were (on the CPU), the blocks that were there are
requested first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from workbench.allocator.replay.program import Lifetimes, Program, program_of
from workbench.allocator.replay.restored_state import restore
from workbench.allocator.simulator.device import Device
from workbench.allocator.simulator.gpus import Gpu
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.simulator.simulator import CachingAllocator
from workbench.memory.reading.recorded_program import recorded_settings, start_of_record
from workbench.records import MemoryRecord


class AllocatorSetup(NamedTuple):
    """Everything that a run needs."""

    allocator: CachingAllocator
    program: Program
    there: dict[int, int]
    """Row of a block that was there before -> its address; empty if these are requested first."""
    is_restored: bool
    """Whether it begins with what was there before."""


def set_up_allocator(
    record: MemoryRecord,
    lifetimes: Lifetimes,
    settings: AllocatorSettings,
    gpu: Gpu | None,
    make: Callable[..., CachingAllocator] = CachingAllocator,
    *,
    device_type: Callable[..., Device] = Device,
) -> AllocatorSetup:
    """Prepare an allocator for the program of ``record``.

    Args:
        record: a recording or a snapshot.
        lifetimes: its blocks, possibly with other sizes than recorded; further ones may follow
            them.
        settings: the settings of the allocator.
        gpu: the GPU; None: a GPU without a limit.
        make: makes the allocator, with the arguments of `CachingAllocator`.
        device_type: makes the device, with the arguments of `Device`.
    """
    state, there = start_of_record(record)
    before = np.flatnonzero((lifetimes.start < 0) & (lifetimes.requested > 0))
    is_known = len(before) == len(there)
    is_known = is_known and np.array_equal(
        lifetimes.requested[before],
        record.block_requested[before[before < len(record.block_start)]],
    )
    held = sum(segment.size for segment in state.segments)
    fits = gpu is None or held <= gpu.usable_bytes
    is_restored = is_known and fits and settings == recorded_settings(record)
    above = max((segment.address + segment.size for segment in state.segments), default=0)
    usable, total = (None, None) if gpu is None else (gpu.usable_bytes, gpu.total_bytes)
    device = device_type(usable, total, above=above if is_restored else 0)
    allowed = usable if settings.garbage_collection_threshold else None
    allocator = make(settings, device, allowed=allowed)
    if is_restored:
        restore(allocator, state)
    program = program_of(lifetimes, from_start=not is_restored)
    return AllocatorSetup(allocator, program, there if is_restored else {}, is_restored)
