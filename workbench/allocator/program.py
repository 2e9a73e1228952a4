"""What a program asked of the allocator, apart from what the allocator made of it.

A `Program` is a recording without addresses: who asked for how many bytes on which stream, and when
it was given back. It can be run under other settings and on another card.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.allocator.shortage import Shortage, shortage
from workbench.allocator.simulator import CachingAllocator, OutOfMemoryError
from workbench.allocator.snapshot import I32, I64


@dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """Blocks with their lives, and nothing of where they lay."""

    requested: I64
    """Bytes of each block."""
    stream: I64
    private: I32
    """Private pool of each block; 0 for the default one."""
    block: I32
    """Of each step, the row of its block."""
    allocates: npt.NDArray[np.bool_]
    """Of each step, whether it allocates."""
    event: I64
    """Of each step, the event of the recording; -1 for blocks that were there before."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """What became of a program."""

    peak_reserved: int
    """Bytes held from the driver at most."""
    peak_event: int
    """Event at which that was first so; -1 before the first."""
    peak_allocated: int
    """Bytes of blocks in use at most."""
    num_retries: int
    """How often everything unused was given back to serve a request."""
    failure: OutOfMemoryError | None
    """Why it did not run to its end."""
    failed_event: int
    """Event at which it ended; -1 where it ran to its end, or where it could not begin."""
    shortage: Shortage | None
    """What kept the last request from being served."""
    in_the_way: I32
    """Rows of the blocks that would have had to go for it, the fewest bytes that are enough."""

    @property
    def fits(self) -> bool:
        """Whether it ran to its end."""
        return self.failure is None


def program_of(start: I32, end: I32, requested: I64, stream: I64, private: I32) -> Program:
    """The program of blocks with ``start`` and ``end`` events (-1: before, after the recording).

    Blocks that were there before are asked for first, in the order in which they are given.
    Requests of no bytes never reach an allocator and are left out.
    """
    rows = np.flatnonzero(requested > 0)
    ends = rows[end[rows] >= 0]
    block = np.concatenate([rows, ends])
    event = np.concatenate([start[rows], end[ends]]).astype(np.int64)
    allocates = np.arange(len(block)) < len(rows)
    order = np.lexsort((block, event))
    return Program(
        requested=requested,
        stream=stream,
        private=private,
        block=block[order].astype(np.int32),
        allocates=allocates[order],
        event=event[order],
    )


def run(program: Program, allocator: CachingAllocator) -> Outcome:
    """Run ``program`` on an allocator that nothing was asked of yet."""
    addresses: dict[int, int] = {}
    peak = peak_event = allocated = most = 0
    failure: OutOfMemoryError | None = None
    missing: Shortage | None = None
    event = failed = -1
    peak_event = -1
    blocks = allocator.blocks
    for row, allocates, event, size, stream, private in _steps(program):
        if not allocates:
            address = addresses.pop(row)
            allocated -= blocks[address].size
            allocator.free(address)
            continue
        if private not in allocator.pools:
            allocator.add_pool(private)
        try:
            address = addresses[row] = allocator.malloc(size, stream, private)
        except OutOfMemoryError as error:
            failure, failed = error, event
            missing = shortage(allocator, size, stream, private)
            break
        allocated += blocks[address].size
        most = max(most, allocated)
        if allocator.reserved > peak:
            peak, peak_event = allocator.reserved, event
    return Outcome(
        peak_reserved=peak,
        peak_event=peak_event,
        peak_allocated=most,
        num_retries=allocator.num_retries,
        failure=failure,
        failed_event=failed,
        shortage=missing,
        in_the_way=_rows(addresses, missing),
    )


def _rows(addresses: dict[int, int], missing: Shortage | None) -> I32:
    """Rows of the blocks in the cheapest way."""
    wanted = missing.obstacles[0].blocks if missing is not None and missing.obstacles else ()
    at = {address: row for row, address in addresses.items()} if wanted else {}
    return np.array([at[address] for address in wanted], dtype=np.int32)


def _steps(program: Program) -> Iterator[tuple[int, bool, int, int, int, int]]:
    columns = (
        program.block,
        program.allocates,
        program.event,
        program.requested[program.block],
        program.stream[program.block],
        program.private[program.block],
    )
    return zip(*(column.tolist() for column in columns), strict=True)
