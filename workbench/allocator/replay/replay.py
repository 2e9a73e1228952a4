"""A recorded trace, run through the simulator: does it do what the allocator did?

The simulator is given what the program did (requests, frees) and what the driver returned
(addresses of new segments). It has to derive everything else by itself, which is compared with the
trace: the address of each block, the size of each new segment, which segments are released and in
which order, and the blocks that are there at the end. The certificate counts what matches. It
covers the settings under which the trace was recorded, and the rules that the trace exercised.

A trace does not contain everything. It does not say why a cache was emptied, which matters with
several streams under ``max_split_size`` or expandable segments: such a replay may diverge from its
trace. Nor does it say which memory fraction garbage collection uses. And the size of a block that
was there before the trace may have to be guessed (`workbench.allocator.replay.start_state`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np

from workbench.allocator.replay.certificate import Certificate
from workbench.allocator.replay.recorded_device import RELEASES, DifferenceError, RecordedDevice
from workbench.allocator.replay.restored_state import restore
from workbench.allocator.replay.start_state import StartState, private_of, start_state
from workbench.allocator.replay.trace_comparison import Done, certificate_of
from workbench.allocator.shortage import Shortage, shortage
from workbench.allocator.simulator.release import unused
from workbench.allocator.simulator.rounding import round_sizes
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.simulator.simulator import CachingAllocator, OutOfMemoryError
from workbench.allocator.snapshot.snapshot import (
    ALLOC,
    FREE_COMPLETED,
    I64,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Snapshot,
)

MOST_SHORTAGES = 100
"""The largest number of refused requests that are examined: a trace may contain a million of them,
and each examination goes through all blocks."""
_SEGMENTS = (SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP)


@dataclass(frozen=True, eq=False, kw_only=True)
class Replay:
    """The result of a replay."""

    certificate: Certificate
    sizes: I64
    """Bytes of the block that an entry of the trace is about: for each ``alloc``, and for the first
    entry about a block that was there before. After a first difference, and elsewhere, the rounded
    request."""
    shortages: dict[int, Shortage]
    """Entry of the trace -> what was in the way of a request that was refused there; for the last
    `MOST_SHORTAGES` of them."""
    start: StartState
    allocator: CachingAllocator
    """As the replay left it."""
    simulated_s: float
    """CPU seconds for the events alone, without the start and the comparison of the end."""


def replay(snapshot: Snapshot, until: int | None = None) -> Replay:
    """Run the trace of ``snapshot`` through a `CachingAllocator` and compare.

    Args:
        snapshot: one device of a snapshot.
        until: number of entries of the trace to run; all of them by default. A truncated replay has
            no end to compare with, and its certificate is not exact.

    Raises:
        SettingsError: the file names settings that the allocator does not accept.
    """
    return _Replay(snapshot, until).run()


class _Replay:
    def __init__(self, snapshot: Snapshot, until: int | None) -> None:
        self.snapshot, self.until = snapshot, until
        self.settings = AllocatorSettings.of_snapshot(snapshot.settings)
        self.device = RecordedDevice(_highest(snapshot))
        self.allocator = CachingAllocator(self.settings, self.device)
        self.start = start_state(snapshot, self.settings)
        restore(self.allocator, self.start)
        self.sizes: list[int] = []
        self.shortages: dict[int, Shortage] = {}
        self.row = 0
        """The last event that was processed."""

    @cached_property
    def _last_refusals(self) -> set[int]:
        return set(np.flatnonzero(self.snapshot.action == OOM)[-MOST_SHORTAGES:].tolist())

    def run(self) -> Replay:
        difference, began = "", time.thread_time()
        try:
            self._do()
            self._finish()
        except DifferenceError as error:
            difference = f"event {self.row:,}: {error}"
        took = time.thread_time() - began
        done = Done(
            sizes=self.sizes,
            num_new=self.device.num_new,
            num_released=self.device.num_released,
            allocator=self.allocator,
            difference=difference,
        )
        return Replay(
            certificate=certificate_of(self.snapshot, self.start, done),
            sizes=self._entry_sizes(),
            shortages=self.shortages,
            start=self.start,
            allocator=self.allocator,
            simulated_s=took,
        )

    def _entry_sizes(self) -> I64:
        found, before = self.snapshot, {}
        sizes = round_sizes(found.size, self.settings)
        sizes[np.flatnonzero(found.action == ALLOC)[: len(self.sizes)]] = self.sizes
        for segment in self.start.segments:
            before |= {block.address: block.size for block in segment.blocks}
        of_blocks = np.flatnonzero(found.action <= FREE_COMPLETED)
        _, firsts = np.unique(found.address[of_blocks], return_index=True)
        rows = of_blocks[firsts]
        rows = rows[found.action[rows] != ALLOC]
        for address, row in zip(found.address[rows].tolist(), rows.tolist(), strict=True):
            if address in before:
                sizes[row] = before[address]
                done = row + 1
                if done < len(sizes) and found.address[done] == address:
                    sizes[done] = before[address]
        return sizes

    def _do(self) -> None:
        """Do what the program did, event by event; some million a second, so names are local."""
        found = self.snapshot
        actions, addresses = found.action[: self.until].tolist(), found.address.tolist()
        requests, streams = found.size.tolist(), found.stream.tolist()
        pools = self._private_pools()
        malloc, blocks = self.allocator.malloc, self.allocator.blocks
        put_back, expected, keep = self.allocator.put_back, self.device.expected, self.sizes.append
        row = 0
        try:
            for row, action in enumerate(actions):
                if action == FREE_COMPLETED:
                    if expected:
                        self._release()
                    put_back(blocks[addresses[row]])
                elif action == ALLOC:
                    private = pools[row] if pools else 0
                    request = requests[row], streams[row], private
                    if expected and self._released(request, addresses[row]):
                        address = malloc(*request, search=False)
                    else:
                        address = malloc(*request)
                    if address != addresses[row]:
                        raise DifferenceError(
                            f"{requests[row]:,} B at {address:#x}, not at {addresses[row]:#x}"
                        )
                    keep(blocks[address].size)
                elif action in _SEGMENTS:
                    expected.append((action, addresses[row], requests[row]))
                elif action == OOM:
                    self._repeat_refusal(
                        row, requests[row], streams[row], pools[row] if pools else 0
                    )
        except (OutOfMemoryError, ValueError, KeyError) as error:
            raise DifferenceError(_reason_of(error, addresses[row])) from None
        finally:
            self.row = row

    def _private_pools(self) -> list[int]:
        """Return the private pool of each event; empty if there are none."""
        if not any(any(pool) for pool in self.snapshot.pools):
            return []
        ids = [private_of(pool) for pool in self.snapshot.pools] + [0]  # row -1: not in the file
        for private in ids:
            if private not in self.allocator.pools:
                self.allocator.add_pool(private)
        return [ids[row] for row in self.snapshot.trace_pool.tolist()]

    def _released(self, request: tuple[int, int, int], address: int) -> bool:
        """Empty the cache if the trace says so; return whether a request caused it.

        A trace records it in the same way whether it was done by hand or for lack of memory. What
        becomes free meanwhile is not searched again by a request that had searched before. If only
        some segments are released, the request itself must determine which. If no new memory
        follows, the cache was emptied by hand, except in one case: under ``max_split_size``, pages
        that are released leave a free block of an expandable segment short enough for a request
        that could not be given it before. In that case the address determines which it was.
        """
        expected = list(takewhile(lambda entry: entry[0] in RELEASES, self.device.expected))
        is_all = len(expected) == len(self.device.expected)
        if not expected or not (is_all or expected == unused(self.allocator)):
            return False
        had_fit = self.allocator.fit(*request) is not None
        self.allocator.empty_cache()
        if is_all and self.allocator.expandable is not None:
            return not had_fit and self.allocator.fit(*request) != address
        return not is_all

    def _release(self) -> None:
        if self.device.expected:
            self.allocator.empty_cache()
            if self.device.expected and self.device.expected[0][0] in RELEASES:
                raise DifferenceError("a segment is given back that the replay still uses")

    def _finish(self) -> None:
        self._release()
        if self.device.expected:
            raise DifferenceError("the trace ends with a segment that was not needed")

    def _repeat_refusal(self, row: int, size: int, stream: int, private: int) -> None:
        """Repeat a refused request: what is allocated and released first must match the trace."""
        self.device.is_full = True
        try:
            self.allocator.malloc(size, stream, private, search=False)
        except OutOfMemoryError:
            if self.allocator.expandable is not None:
                self.allocator.expandable.forget_empty()
            if row in self._last_refusals:
                room = max(0, int(self.snapshot.address[row]))
                found = shortage(self.allocator, size, stream, private, most=1, room=room)
                self.shortages[row] = found
            return
        finally:
            self.device.is_full = False
        raise DifferenceError(f"{size:,} B are found, where the trace runs out of memory")


def _highest(snapshot: Snapshot) -> int:
    """Return the highest address that a snapshot names, or a little beyond."""
    named = [snapshot.address + snapshot.size, snapshot.segment_address + snapshot.segment_bytes]
    return max(int(column.max(initial=0)) for column in named)


def _reason_of(error: Exception, address: int) -> str:
    """Return what it means that the simulator refused something that the allocator did."""
    if isinstance(error, OutOfMemoryError):
        return "segments are given back that the replay still uses"
    return str(error) if isinstance(error, ValueError) else f"no block at {address:#x} to free"
