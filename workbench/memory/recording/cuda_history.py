"""The CUDA allocator's own history of a recording.

The history is switched on without stacks (the recorder knows where an operation ran), and switched
off again only if it was off before; a history that is already running is read and left running.

Not run on this project's development machine, which has no GPU: `tests/gpu` covers it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from workbench.allocator.snapshot.decode import of_live
from workbench.allocator.snapshot.snapshot import Snapshot
from workbench.memory.recording.storage_lifetimes import Block
from workbench.torch_private.memory import (
    allocator_snapshot,
    is_history_on,
    start_history,
    stop_history,
)

_MOST_EVENTS = 1_000_000
"""Events kept for each device; newer ones replace the oldest."""
_CLOCK_SLACK_NS = 200_000
"""The allocator's clock and Python's are calibrated separately; they agree to well within this."""
OVERFLOWED = (
    "The allocator's history was full: its oldest events were overwritten, and what was allocated "
    "and freed before the first event shown is missing."
)


class AllocatorHistory:
    """Records what the allocator does between `start` and `stop`; does nothing without CUDA."""

    def __init__(self) -> None:
        self._was_on = False
        self._started_us = -1
        self._offset_ns = 0
        self.may_be_cut = False
        """After `stop`: whether the history that is left may begin later than `start`."""

    @property
    def started(self) -> bool:
        """Whether `start` found a CUDA allocator to listen to."""
        return self._started_us >= 0

    def start(self) -> None:
        """Switch the history on, if this process uses CUDA."""
        if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
            return
        self._was_on = is_history_on()
        if not self._was_on:
            start_history(_MOST_EVENTS)
        self._offset_ns = time.time_ns() - time.perf_counter_ns()
        self._started_us = time.time_ns() // 1000

    def stop(self, device: str) -> Snapshot | None:
        """Return what ``device`` held and its trace since `start`; times are ``perf_counter``'s."""
        if not self.started:
            return None
        since = self._started_us
        try:
            snapshot = allocator_snapshot()
        finally:
            self.close()
        index = torch.device(device).index or 0
        traces = snapshot["device_traces"]
        if index < len(traces):
            kept = [e for e in traces[index] if e.get("time_us", since) >= since]
            # The capacity of a history that was switched on elsewhere is not known.
            is_full = self._was_on or len(kept) >= _MOST_EVENTS
            self.may_be_cut = is_full and len(kept) == len(traces[index]) > 0
            traces[index] = kept
        found = of_live(snapshot, index)
        return replace(found, time_us=found.time_us - self._offset_ns // 1000)

    def close(self) -> None:
        """Leave the history as `start` found it; idempotent."""
        if self.started and not self._was_on:
            stop_history()
        self._started_us = -1


def begins_late(times_ns: npt.NDArray[np.int64], recorded: Sequence[Block]) -> bool:
    """Return whether storages were made before the oldest event of a trace.

    Args:
        times_ns: times of the trace's events, on the ``perf_counter`` clock.
        recorded: the storages of the trace's device.
    """
    made_ns = [block.started_ns for block in recorded if block.start >= 0]
    if not made_ns or not len(times_ns):
        return False
    return min(made_ns) + _CLOCK_SLACK_NS < int(times_ns.min())


def describe_blocks(allocator: Sequence[Block], recorded: Sequence[Block]) -> None:
    """Give the allocator's blocks the roles, operations and lines of the storages they hold.

    A storage belongs to the block at its address that was the last to be allocated before the
    storage was seen. Blocks about which nothing is known (a kernel's workspace) keep what the
    allocator reports.
    """
    by_address: dict[int, list[Block]] = {}
    for block in sorted(allocator, key=lambda block: block.start):
        by_address.setdefault(block.address, []).append(block)
    for storage in recorded:
        candidates = by_address.get(storage.address, [])
        starts = [block.started_ns for block in candidates]
        row = bisect_right(starts, storage.started_ns + _CLOCK_SLACK_NS) - 1
        if row >= 0:
            _describe(candidates[row if storage.start >= 0 else 0], storage)


def _describe(block: Block, storage: Block) -> None:
    block.op, block.line = storage.op, storage.line or block.line
    block.call = storage.call if storage.call >= 0 else block.call
    block.name, block.module, block.category = storage.name, storage.module, storage.category
