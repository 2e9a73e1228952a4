"""The requests of a program, separated from what the allocator made of them.

A `Program` is a recording without addresses: how many bytes were requested on which stream, and
when they were freed. It can be run under other settings and on another GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from workbench.allocator.shortage import Shortage, shortage
from workbench.allocator.simulator.simulator import CachingAllocator, OutOfMemoryError
from workbench.allocator.snapshot.snapshot import I32, I64

ALLOCATE, FREE, WAIT, COMPLETE, EMPTY = range(5)
"""What a step does: request a block; free it; free it while a stream still uses it; that stream is
done; empty the cache."""
_NO_BLOCK = -1


@dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """Blocks with their lifetimes, without their addresses."""

    requested: I64
    """Bytes of each block."""
    stream: I64
    private: I32
    """Private pool of each block; 0 for the default one."""
    block: I32
    """For each step, the row of its block; -1 if it is not about a block."""
    kind: I32
    """For each step, what it does."""
    event: I64
    """For each step, the event of the recording; -1 for blocks that were there before."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Lifetimes:
    """The input from which a program is made; events are -1 before and after the recording."""

    start: I32
    end: I32
    pending: I32
    """Event at which a block was freed that ended only later; -1 for others."""
    requested: I64
    stream: I64
    private: I32
    emptied: I32
    """Events at which the program emptied the cache."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """The result of a program."""

    peak_reserved: int
    """Maximum of the bytes held from the driver."""
    peak_event: int
    """Event at which that was first reached; -1 before the first."""
    peak_allocated: int
    """Maximum of the bytes of blocks in use."""
    num_retries: int
    """How often everything unused was released to serve a request."""
    failure: OutOfMemoryError | None
    """Why it did not run to its end."""
    failed_event: int
    """Event at which it ended; -1 if it ran to its end, or if it could not begin."""
    shortage: Shortage | None
    """What prevented the last request from being served."""
    in_the_way: I32
    """Rows of the blocks of the cheapest obstacle: freeing them would have made room for it."""

    @property
    def fits(self) -> bool:
        """Whether it ran to its end."""
        return self.failure is None


def program_of(lifetimes: Lifetimes, *, from_start: bool = True) -> Program:
    """Return the program of blocks.

    Requests of 0 bytes never reach an allocator and are left out.

    Args:
        lifetimes: the lifetimes of the blocks.
        from_start: whether blocks that were there before are requested first, in the order in which
            they are given; False if the allocator has them already.
    """
    rows = np.flatnonzero(lifetimes.requested > 0)
    begins = rows if from_start else rows[lifetimes.start[rows] >= 0]
    ended, waited = lifetimes.end[rows] >= 0, lifetimes.pending[rows] >= 0
    waits, frees, completes = rows[waited], rows[ended & ~waited], rows[ended & waited]
    emptied = np.full(len(lifetimes.emptied), _NO_BLOCK)
    parts = (
        (EMPTY, emptied, lifetimes.emptied),
        (ALLOCATE, begins, lifetimes.start[begins]),
        (WAIT, waits, lifetimes.pending[waits]),
        (FREE, frees, lifetimes.end[frees]),
        (COMPLETE, completes, lifetimes.end[completes]),
    )
    block = np.concatenate([part[1] for part in parts])
    event = np.concatenate([part[2] for part in parts]).astype(np.int64)
    kind = np.concatenate([np.full(len(part[1]), part[0]) for part in parts])
    order = np.lexsort((block, event))  # stable: what is requested and freed at once stays so
    return Program(
        requested=lifetimes.requested,
        stream=lifetimes.stream,
        private=lifetimes.private,
        block=block[order].astype(np.int32),
        kind=kind[order].astype(np.int32),
        event=event[order],
    )


Watch = Callable[[int, int], None]
"""Called with the row and the event of each step before it is done."""


def run(
    program: Program,
    allocator: CachingAllocator,
    there: Mapping[int, int] | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Run ``program``.

    Args:
        program: the requests to make.
        allocator: an allocator without requests yet, or one that holds the blocks of ``there``.
        there: row of a block that was there before -> its address.
        watch: called for every step.
    """
    return _Run(program, allocator, dict(there or {}), watch).outcome()


class _Run:
    def __init__(
        self,
        program: Program,
        allocator: CachingAllocator,
        addresses: dict[int, int],
        watch: Watch | None,
    ) -> None:
        self.program, self.allocator, self.addresses = program, allocator, addresses
        self.watch = watch
        self.allocated = sum(allocator.blocks[at].size for at in addresses.values())
        self.most = self.allocated
        self.peak, self.peak_event = allocator.reserved, -1

    def outcome(self) -> Outcome:
        failure: OutOfMemoryError | None = None
        missing: Shortage | None = None
        failed = -1
        for kind, row, event, size, stream, private in self._steps():
            if self.watch is not None:
                self.watch(row, event)
            if kind != ALLOCATE:
                self._release(kind, row)
                continue
            try:
                self._allocate(row, event, size, stream, private)
            except OutOfMemoryError as error:
                failure, failed = error, event
                missing = shortage(self.allocator, size, stream, private)
                break
        return Outcome(
            peak_reserved=self.peak,
            peak_event=self.peak_event,
            peak_allocated=self.most,
            num_retries=self.allocator.num_retries,
            failure=failure,
            failed_event=failed,
            shortage=missing,
            in_the_way=self._in_the_way(missing),
        )

    def _allocate(self, row: int, event: int, size: int, stream: int, private: int) -> None:
        allocator = self.allocator
        if private not in allocator.pools:
            allocator.add_pool(private)
        address = self.addresses[row] = allocator.malloc(size, stream, private)
        self.allocated += allocator.blocks[address].size
        self.most = max(self.most, self.allocated)
        if allocator.reserved > self.peak:
            self.peak, self.peak_event = allocator.reserved, event

    def _release(self, kind: int, row: int) -> None:
        allocator = self.allocator
        if kind == EMPTY:
            allocator.empty_cache()
            return
        known = self.addresses.get if kind == WAIT else self.addresses.pop
        address = known(row, None)
        block = None if address is None else allocator.blocks.get(address)
        if address is None or block is None:
            return
        if kind == COMPLETE:
            if block.waiting:  # emptying the cache has waited for it already
                allocator.complete(address)
            return
        self.allocated -= block.size
        if kind == WAIT:
            allocator.record_stream(address, block.region.stream + 1)
        allocator.free(address)

    def _steps(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        program = self.program
        rows = np.maximum(program.block, 0)
        about = (program.requested, program.stream, program.private)
        columns = [program.kind, program.block, program.event]
        columns += [column[rows] if len(column) else rows for column in about]
        return zip(*(column.tolist() for column in columns), strict=True)

    def _in_the_way(self, missing: Shortage | None) -> I32:
        """Return the rows of the blocks of the cheapest obstacle that the program knows."""
        wanted = missing.obstacles[0].blocks if missing is not None and missing.obstacles else ()
        at = {address: row for row, address in self.addresses.items()} if wanted else {}
        found = [at[address] for address in wanted if address in at]
        return np.array(found, dtype=np.int32)
