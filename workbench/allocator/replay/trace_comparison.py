"""A replay compared with its trace: the counts that make a certificate.

A replay stops at its first difference, so everything up to there matches. Then the final blocks are
compared with those of the snapshot, and the rules that the trace exercised are listed: it does not
certify the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.allocator.replay.certificate import Certificate, Count
from workbench.allocator.replay.start_state import StartState
from workbench.allocator.simulator.rounding import SMALL_SIZE
from workbench.allocator.simulator.simulator import CachingAllocator
from workbench.allocator.snapshot.snapshot import (
    ALLOC,
    FREE,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Snapshot,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Done:
    """The results of a replay up to its end, or to its first difference."""

    sizes: list[int]
    """Bytes of each block that was put where the trace has it, in order."""
    num_new: int
    """Segments, or ranges of pages, that were allocated as in the trace."""
    num_released: int
    """Segments, or ranges of pages, that were released as in the trace."""
    allocator: CachingAllocator
    difference: str
    """The first difference; empty if there is none."""


def certificate_of(snapshot: Snapshot, start: StartState, done: Done) -> Certificate:
    """Compare ``done`` with ``snapshot``."""
    events = np.bincount(snapshot.action, minlength=OOM + 1).tolist()
    blocks, difference = _final_blocks(snapshot, done.allocator), done.difference
    if not difference and not blocks.is_exact:
        difference = f"{blocks} blocks are there in the end"
    return Certificate(
        addresses=Count(len(done.sizes), events[ALLOC]),
        segments=Count(done.num_new, events[SEGMENT_ALLOC] + events[SEGMENT_MAP]),
        releases=Count(done.num_released, events[SEGMENT_FREE] + events[SEGMENT_UNMAP]),
        blocks=blocks,
        num_inferred=start.num_inferred,
        first_difference=difference,
        settings=done.allocator.settings,
        cases=tuple(_cases(snapshot, done.sizes)),
    )


def _cases(snapshot: Snapshot, sizes: list[int]) -> list[str]:
    """Return the cases in a trace, as far as it was replayed."""
    pools = {size > SMALL_SIZE for size in sizes}
    cases = [
        f"{name} pool" for name, large in (("small", False), ("large", True)) if large in pools
    ]
    streams = len(np.unique(snapshot.stream[snapshot.action == ALLOC]))
    if streams > 1:
        cases.append(f"{streams} streams")
    is_private = np.array([*(any(pool) for pool in snapshot.pools), False])
    if is_private[snapshot.trace_pool].any():
        cases.append("private pools")
    named = {SEGMENT_FREE: "segments given back", SEGMENT_MAP: "pages mapped"}
    named |= {SEGMENT_UNMAP: "pages given back", OOM: "out of memory"}
    return cases + [name for action, name in named.items() if (snapshot.action == action).any()]


def _final_blocks(snapshot: Snapshot, allocator: CachingAllocator) -> Count:
    columns = snapshot.block_address, snapshot.block_bytes, snapshot.block_state
    recorded = {
        (address, size, state != FREE)
        for address, size, state in zip(*(column.tolist() for column in columns), strict=True)
    }
    free = [block for region in allocator.regions() for _, _, block in region.free]
    replayed = {
        (block.address, block.size, block.is_busy) for block in [*allocator.blocks.values(), *free]
    }
    return Count(len(recorded & replayed), len(recorded | replayed))
