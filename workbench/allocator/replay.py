"""A recorded trace, run through the simulator: does it do what the allocator did?

The simulator is told what the program did (requests, frees) and what the driver answered (addresses
of new segments). Everything else it must find by itself, and is compared with the trace: the
address of every block, the size of every new segment, which segments go back and in which order,
and the blocks that are there in the end. The certificate counts what came out alike. It covers the
settings the trace was recorded under, and the rules that the trace exercised.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from workbench.allocator.device import Device
from workbench.allocator.restore import restore
from workbench.allocator.settings import AllocatorSettings
from workbench.allocator.simulator import CachingAllocator, OutOfMemoryError
from workbench.allocator.snapshot import (
    ALLOC,
    FREE,
    FREE_COMPLETED,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Snapshot,
)
from workbench.allocator.start_state import StartState, private_of, start_state

_RELEASES = (SEGMENT_FREE, SEGMENT_UNMAP)
_SEGMENTS = (SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP)


@dataclass(frozen=True)
class Count:
    """So many of so many came out alike."""

    alike: int
    total: int

    @property
    def is_exact(self) -> bool:
        """Whether all did."""
        return self.alike == self.total

    def __str__(self) -> str:
        return f"{self.alike:,} of {self.total:,}"


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """How far a replay reproduced its trace."""

    addresses: Count
    """Blocks that were allocated where the allocator put them."""
    segments: Count
    """New segments, or mapped pages, of the right size at the right moment."""
    releases: Count
    """Segments given back in the right order."""
    blocks: Count
    """Blocks that are there in the end, in use or free, with the right address and size."""
    num_inferred: int
    """Blocks that were there before the trace and whose size had to be inferred."""
    first_difference: str
    """Where the replay first did something else; empty where it never did."""
    settings: str
    """What it was recorded and replayed under."""

    @property
    def exact(self) -> bool:
        """Whether everything came out alike."""
        counts = self.addresses, self.segments, self.releases, self.blocks
        alike = all(count.is_exact for count in counts) and not self.first_difference
        return alike and self.addresses.total > 0

    def __str__(self) -> str:
        if self.exact:
            return f"replay reproduces all {self.addresses.total:,} addresses"
        share = 100 * self.addresses.alike / max(1, self.addresses.total)
        return f"replay reproduces {share:.1f} % of the addresses: {self.first_difference}"


@dataclass(frozen=True, eq=False)
class Replay:
    """What a replay found out."""

    certificate: Certificate
    sizes: list[int]
    """Bytes that the block of each ``alloc`` of the trace took, in order."""
    start: StartState
    allocator: CachingAllocator
    """As the replay left it."""
    simulated_s: float
    """Processor seconds for the events alone, without the start and the comparison of the end."""


class _DifferenceError(Exception):
    """The simulator did something that the trace does not say."""


class _Recorded(Device):
    """A device that answers as the driver did, and checks what it is asked.

    A request for memory fails where the trace gives segments back next: that is what the allocator
    did because the driver had no more.
    """

    def __init__(self) -> None:
        super().__init__()
        self.expected: deque[tuple[int, int, int]] = deque()
        """(action, address, bytes) of what the trace says about segments next."""
        self.is_full = False
        """Whether every request fails."""
        self.num_new = self.num_released = 0
        """Segments, or stretches of pages, that came and went as in the trace."""

    def allocate(self, size: int) -> int | None:
        """The address that the trace gives the next segment."""
        return self._new(SEGMENT_ALLOC, size)

    def map(self, size: int) -> bool:
        """Whether the trace maps pages next."""
        return self._new(SEGMENT_MAP, size) is not None

    def reserve(self, size: int) -> int:
        """The address of the first pages that the trace maps next."""
        return self.expected[0][1] if self.expected else super().reserve(size)

    def free(self, address: int, size: int) -> None:
        """Compare a segment that is given back."""
        self._released(SEGMENT_FREE, size, address)

    def unmap(self, size: int) -> None:
        """Compare pages that are given back."""
        self._released(SEGMENT_UNMAP, size)

    def _new(self, action: int, size: int) -> int | None:
        if self.is_full or (self.expected and self.expected[0][0] in _RELEASES):
            return None
        if not self.expected:
            raise _DifferenceError(f"a new segment of {size:,} B, where the trace has none")
        found, address, expected = self.expected.popleft()
        if (found, expected) != (action, size):
            raise _DifferenceError(f"a new segment of {size:,} B, not of {expected:,} B")
        self.num_new += 1
        return address

    def _released(self, action: int, size: int, address: int | None = None) -> None:
        if not self.expected:
            raise _DifferenceError(f"{size:,} B are given back, where the trace keeps them")
        found, there, expected = self.expected.popleft()
        if (found, expected) != (action, size) or address not in (None, there):
            raise _DifferenceError(
                f"{size:,} B are given back, where the trace gives {expected:,} B at {there:#x}"
            )
        self.num_released += 1


def replay(snapshot: Snapshot) -> Replay:
    """Run the trace of ``snapshot`` through a `CachingAllocator` and compare.

    Raises:
        SettingsError: the file names settings that the allocator would not take.
    """
    return _Replay(snapshot).run()


class _Replay:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.settings = AllocatorSettings.of_snapshot(snapshot.settings)
        self.device = _Recorded()
        self.allocator = CachingAllocator(self.settings, self.device)
        self.start = start_state(snapshot, self.settings)
        restore(self.allocator, self.start)
        self.sizes: list[int] = []
        self.row = 0
        """The event that was done last."""

    def run(self) -> Replay:
        difference, began = "", time.thread_time()
        try:
            self._do()
            self._finish()
        except _DifferenceError as error:
            difference = f"event {self.row:,}: {error}"
        took = time.thread_time() - began
        certificate = self._certificate(difference)
        return Replay(certificate, self.sizes, self.start, self.allocator, took)

    def _do(self) -> None:
        """What the program did, event by event; some million a second, so all is at hand."""
        found = self.snapshot
        actions, addresses = found.action.tolist(), found.address.tolist()
        requests, streams = found.size.tolist(), found.stream.tolist()
        pools = self._private_pools()
        malloc, blocks = self.allocator.malloc, self.allocator.blocks
        put_back, expected, keep = self.allocator.put_back, self.device.expected, self.sizes.append
        row = 0
        try:
            for row, action in enumerate(actions):
                if action == FREE_COMPLETED:
                    if expected:
                        self._give_back()
                    put_back(blocks[addresses[row]])
                elif action == ALLOC:
                    if expected:
                        self._before_malloc()
                    address = malloc(requests[row], streams[row], pools[row] if pools else 0)
                    if address != addresses[row]:
                        raise _DifferenceError(
                            f"{requests[row]:,} B at {address:#x}, not at {addresses[row]:#x}"
                        )
                    keep(blocks[address].size)
                elif action in _SEGMENTS:
                    expected.append((action, addresses[row], requests[row]))
                elif action == OOM:
                    self._run_out(requests[row], streams[row], pools[row] if pools else 0)
        except KeyError:
            raise _DifferenceError(f"no block at {addresses[row]:#x} to free") from None
        finally:
            self.row = row

    def _private_pools(self) -> list[int]:
        """The private pool of each event; empty where there are none."""
        if not any(any(pool) for pool in self.snapshot.pools):
            return []
        ids = [private_of(pool) for pool in self.snapshot.pools] + [0]  # row -1: the file is silent
        for private in ids:
            if private not in self.allocator.pools:
                self.allocator.add_pool(private)
        return [ids[row] for row in self.snapshot.trace_pool.tolist()]

    def _before_malloc(self) -> None:
        """Tell a cache that was emptied by hand from one that was emptied for want of memory.

        The trace writes both alike. For want of memory, a new segment follows.
        """
        if all(action in _RELEASES for action, _, _ in self.device.expected):
            self._give_back()

    def _give_back(self) -> None:
        if self.device.expected:
            self.allocator.empty_cache()
            if self.device.expected and self.device.expected[0][0] in _RELEASES:
                raise _DifferenceError("a segment is given back that the replay still uses")

    def _finish(self) -> None:
        self._give_back()
        if self.device.expected:
            raise _DifferenceError("the trace ends with a segment that was not needed")

    def _run_out(self, size: int, stream: int, private: int) -> None:
        self.device.is_full = True
        try:
            self.allocator.malloc(size, stream, private)
        except OutOfMemoryError:
            return
        finally:
            self.device.is_full = False
        raise _DifferenceError(f"{size:,} B are found, where the trace runs out of memory")

    def _certificate(self, difference: str) -> Certificate:
        actions = self.snapshot.action
        counts = {action: int((actions == action).sum()) for action in (ALLOC, *_SEGMENTS)}
        blocks = self._final_blocks()
        if not difference and not blocks.is_exact:
            difference = f"{blocks} blocks are there in the end"
        return Certificate(
            addresses=Count(len(self.sizes), counts[ALLOC]),
            segments=Count(self.device.num_new, counts[SEGMENT_ALLOC] + counts[SEGMENT_MAP]),
            releases=Count(self.device.num_released, counts[SEGMENT_FREE] + counts[SEGMENT_UNMAP]),
            blocks=blocks,
            num_inferred=self.start.num_inferred,
            first_difference=difference,
            settings=str(self.settings),
        )

    def _final_blocks(self) -> Count:
        found = self.snapshot
        columns = found.block_address, found.block_bytes, found.block_state
        recorded = {
            (address, size, state != FREE)
            for address, size, state in zip(*(column.tolist() for column in columns), strict=True)
        }
        free = [block for region in self.allocator.regions() for _, _, block in region.free]
        replayed = {
            (block.address, block.size, block.is_busy)
            for block in [*self.allocator.blocks.values(), *free]
        }
        return Count(len(recorded & replayed), len(recorded | replayed))
