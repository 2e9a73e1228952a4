"""The CUDA allocator's own history of a recording.

All private allocator calls of ``torch.cuda.memory`` are made here and nowhere else. History is
switched on without stacks (the recorder knows where an operation ran), and switched off again only
if it was off before; a history that runs already is read and left running.

Not run on this project's development machine, which has no GPU: `tests/gpu` covers it.
"""

# pyright: reportPrivateUsage=false
# Using private names is this file's purpose.

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from workbench.allocator.decode import of_live
from workbench.allocator.snapshot import Snapshot
from workbench.memory.blocks import Block

_MOST_EVENTS = 1_000_000
_CLOCK_SLACK_NS = 200_000
"""The allocator's clock and Python's are calibrated apart; they agree to well within this."""


class AllocatorHistory:
    """Records what the allocator does between `start` and `stop`; does nothing without CUDA."""

    def __init__(self) -> None:
        self._was_on = False
        self._started_us = -1
        self._offset_ns = 0

    @property
    def started(self) -> bool:
        """Whether `start` found a CUDA allocator to listen to."""
        return self._started_us >= 0

    def start(self) -> None:
        """Switch the history on, if this process uses CUDA."""
        if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
            return
        self._was_on = torch._C._cuda_isHistoryEnabled()
        if not self._was_on:
            torch.cuda.memory._record_memory_history(
                "all", context=None, stacks="python", max_entries=_MOST_EVENTS
            )
        self._offset_ns = time.time_ns() - time.perf_counter_ns()
        self._started_us = time.time_ns() // 1000

    def stop(self, device: str) -> Snapshot | None:
        """What ``device`` held, its trace since `start`, times on the ``perf_counter`` clock."""
        if not self.started:
            return None
        snapshot = cast(dict[str, Any], torch.cuda.memory._snapshot())
        if not self._was_on:
            torch.cuda.memory._record_memory_history(None)
        index = torch.device(device).index or 0
        traces = snapshot["device_traces"]
        if index < len(traces):
            since = self._started_us
            traces[index] = [e for e in traces[index] if e.get("time_us", since) >= since]
        found = of_live(snapshot, index)
        self._started_us = -1
        return replace(found, time_us=found.time_us - self._offset_ns // 1000)


def describe_blocks(allocator: Sequence[Block], recorded: Sequence[Block]) -> None:
    """Give the allocator's blocks the roles, operations and lines of the storages they hold.

    A storage belongs to the block at its address that was allocated last before the storage was
    seen. Blocks nothing is known of (a kernel's workspace) keep what the allocator says.
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
    block.name, block.module, block.category = storage.name, storage.module, storage.category
