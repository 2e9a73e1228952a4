"""The same program on the simulator and on the plain rules, and what differs.

A program is a settings object, a card, and a list of operations drawn from a seeded generator: so a
difference comes with all that is needed to see it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.properties.reference_allocator import ReferenceAllocator, ReferenceOutOfMemoryError
from workbench.allocator.simulator.device import Device
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.simulator.simulator import CachingAllocator, OutOfMemoryError

KIB, MIB = 2**10, 2**20
PRIVATE = 7
ADDRESSES = 2**30
"""Bytes of a card without a limit, so few that programs need several ranges of addresses."""
DEFAULT = AllocatorSettings()


@dataclass(frozen=True)
class Program:
    """What is run on both."""

    seed: int
    settings: AllocatorSettings = DEFAULT
    capacity: int | None = None
    allowed: int | None = None
    num_streams: int = 1
    most_live: int = 60
    has_private: bool = False

    def sizes(self, choose: random.Random) -> int:
        """A request: near every edge of the rules, and anything else."""
        edges = (1, 511, 512, 513, MIB, MIB + 1, 2 * MIB, 10 * MIB, 19 * MIB, 20 * MIB, 64 * MIB)
        kind = choose.random()
        if kind < 0.35:
            return max(1, choose.choice(edges) + choose.choice((-512, -1, 0, 1, 512)))
        if kind < 0.7:
            return choose.randrange(1, 4 * MIB)
        return int(2 ** choose.uniform(0, 26.5))


class LoggedDevice(Device):
    """A device that writes down what it grants, in the words of the plain rules."""

    def __init__(self, capacity: int | None, total: int) -> None:
        super().__init__(capacity, total)
        self.log: list[tuple[str, int, int]] = []

    def allocate(self, size: int) -> int | None:
        address = super().allocate(size)
        if address is not None:
            self.log.append(("new", address, size))
        return address

    def free(self, address: int, size: int) -> None:
        super().free(address, size)
        self.log.append(("free", address, size))

    def map(self, address: int, size: int) -> bool:
        granted = super().map(address, size)
        if granted:
            self.log.append(("map", address, size))
        return granted

    def unmap(self, address: int, size: int) -> None:
        super().unmap(address, size)
        self.log.append(("unmap", address, size))


class Run:
    """One program under way on both."""

    def __init__(
        self,
        program: Program,
        make: Callable[..., CachingAllocator] = CachingAllocator,
    ) -> None:
        self.program = program
        self.choose = random.Random(program.seed)  # a fixed sequence, nothing secret
        total = program.capacity or ADDRESSES
        self.device = LoggedDevice(program.capacity, total)
        self.plain_device = Device(program.capacity, total)
        self.fast = make(program.settings, self.device, allowed=program.allowed)
        self.plain = ReferenceAllocator(program.settings, self.plain_device, program.allowed)
        self.live: list[int] = []
        self.waiting: list[int] = []
        self.num_out_of_memory = 0
        self.done: list[str] = []

    def difference(self, num_operations: int, check_every: int = 1) -> str:
        """The first difference within so many operations; empty where there is none."""
        for number in range(num_operations):
            self.step()
            whole = number % check_every == 0 or number == num_operations - 1
            found = self.compare(whole=whole)
            if found:
                return f"after {number + 1} operations ({self.done[-1]}): {found}"
        return ""

    def step(self) -> None:
        """One operation, on both."""
        choose = self.choose
        kind = choose.random()
        room = len(self.live) / self.program.most_live
        if kind < 0.02:
            self.both("empty_cache")
            self.waiting.clear()
        elif kind < 0.06 and self.live and self.program.num_streams > 1:
            stream = choose.randrange(self.program.num_streams)
            self.both("record_stream", choose.choice(self.live), stream)
        elif kind < 0.12 and self.waiting:
            self.both("complete", self.waiting.pop(choose.randrange(len(self.waiting))))
        elif kind < 0.13 and self.program.has_private:
            self.switch_pool()
        elif self.live and choose.random() < 0.5 * room + 0.2:
            self.free()
        else:
            self.malloc()

    def malloc(self) -> None:
        choose = self.choose
        stream = choose.randrange(self.program.num_streams)
        private = PRIVATE if self.program.has_private and choose.random() < 0.3 else 0
        if private and private not in self.fast.pools:
            self.both("add_pool", private)
        size = self.program.sizes(choose)
        self.done.append(f"malloc({size}, {stream}, {private})")
        found, plain = None, None
        try:
            found = self.fast.malloc(size, stream, private)
        except OutOfMemoryError:
            self.num_out_of_memory += 1
        try:
            plain = self.plain.malloc(size, stream, private)
        except ReferenceOutOfMemoryError:
            plain = None
        self.waiting = [address for address in self.waiting if address in self.plain.waiting]
        self.addresses = found, plain
        if found is not None and found == plain:
            self.live.append(found)

    addresses: tuple[int | None, int | None] = (None, None)

    def free(self) -> None:
        address = self.live.pop(self.choose.randrange(len(self.live)))
        self.both("free", address)
        if address in self.plain.waiting:
            self.waiting.append(address)

    def switch_pool(self) -> None:
        if PRIVATE in self.plain.in_private_use:
            self.both("release_pool", PRIVATE)
        else:
            self.both("add_pool", PRIVATE)

    def both(self, name: str, *args: int) -> None:
        self.done.append(f"{name}{args}")
        getattr(self.fast, name)(*args)
        getattr(self.plain, name)(*args)

    def compare(self, *, whole: bool) -> str:
        """How the two differ; all blocks are compared only where ``whole``."""
        fast, plain = self.fast, self.plain
        if self.addresses[0] != self.addresses[1]:
            return f"address {self.addresses[0]} is not {self.addresses[1]}"
        log = self.device.log
        if log != plain.log:
            return f"segments {log[-3:]} are not {plain.log[-3:]}"
        log.clear()
        plain.log.clear()
        if fast.reserved != self.device.in_use or fast.num_retries != plain.num_retries:
            return f"{fast.reserved} reserved, {self.device.in_use} on the device"
        return self._compare_blocks() if whole else ""

    def _compare_blocks(self) -> str:
        fast, plain = self.fast, self.plain
        if fast.reserved != plain.reserved:
            return f"{fast.reserved} reserved, not {plain.reserved}"
        used = sorted((b.address, b.size, b.requested, b.waiting) for b in fast.blocks.values())
        expected = sorted(
            (u.address, u.size, u.requested, u.waiting) for s in plain.segments for u in s.used
        )
        if used != expected:
            return f"in use: {sorted(set(used) ^ set(expected))[:4]}"
        free = sorted((a, s) for region in fast.regions() for s, a, _ in region.free)
        gaps = sorted((g.address, g.size) for s in plain.segments for g in s.gaps())
        if free != gaps:
            return f"free: {sorted(set(free) ^ set(gaps))[:4]}"
        return self._compare_sums()

    def _compare_sums(self) -> str:
        busy = sum(block.size for block in self.fast.blocks.values())
        free = sum(size for region in self.fast.regions() for size, _, _ in region.free)
        if busy + free != self.fast.reserved:
            return f"{busy} bytes in use and {free} free are not {self.fast.reserved}"
        return ""
