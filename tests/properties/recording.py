"""Traces as the allocator writes them, made by the plain rules instead of the simulator."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import numpy as np

from tests.properties.allocator_runs import PRIVATE, Program
from tests.properties.reference_allocator import ReferenceAllocator, ReferenceOutOfMemoryError
from workbench.allocator.simulator.device import Device
from workbench.allocator.snapshot.snapshot import ACTIONS, ALLOCATED, FREE, PENDING, Snapshot

WORDS = {"new": "segment_alloc", "free": "segment_free", "map": "segment_map"}
WORDS["unmap"] = "segment_unmap"


class Recorder(ReferenceAllocator):
    """The plain rules, with everything that happens written down in order."""

    def __init__(self, program: Program) -> None:
        device = Device(program.capacity, 4 * (program.capacity or 2**30))
        super().__init__(program.settings, device, None)
        self.entries: list[tuple[str, int, int, int, int]] = []

    def note(self, action: str, address: int, size: int, segment: Any) -> None:
        self.flush()
        self.entries.append((action, address, size, segment.stream, segment.private))

    def flush(self) -> None:
        """What came and went of segments since."""
        for word, address, size in self.log:
            below = max((one for one in self.owner if one <= address), default=address)
            stream, private = self.owner.get(below, self.current)
            if word in ("new", "map"):
                stream, private = self.current
                self.owner[address] = self.current
            self.entries.append((WORDS[word], address, size, stream, private))
        self.log.clear()

    owner: dict[int, tuple[int, int]]
    current = 0, 0

    def malloc(self, requested: int, stream: int = 0, private: int = 0) -> int:
        self.current = stream, private
        try:
            address = super().malloc(requested, stream, private)
        except ReferenceOutOfMemoryError:
            self.flush()
            left = (self.device.capacity or 0) - self.device.in_use
            self.entries.append(("oom", left, self.rounded(requested), stream, private))
            raise
        self.note("alloc", address, requested, self.find(address)[0])
        return address

    def free(self, address: int) -> None:
        segment, used = self.find(address)
        self.note("free_requested", address, used.requested, segment)
        if not used.streams:
            self.note("free_completed", address, used.requested, segment)
        super().free(address)

    def complete(self, address: int) -> None:
        segment, used = self.find(address)
        self.note("free_completed", address, used.requested, segment)
        super().complete(address)

    def empty_cache(self) -> None:
        super().empty_cache()
        self.flush()


def record(program: Program, before: int, during: int) -> Snapshot:
    """A snapshot of ``during`` operations, after ``before`` that were not recorded."""
    return record_with_start(program, before, during)[0]


def record_with_start(
    program: Program, before: int, during: int
) -> tuple[Snapshot, dict[int, int]]:
    """The same, and the truth about its beginning: address of a block -> its bytes."""
    choose = random.Random(program.seed)
    found = Recorder(program)
    found.owner = {}
    live: list[int] = []
    held: dict[int, int] = {}
    for number in range(before + during):
        if number == before:
            found.flush()
            found.entries.clear()
            held = {used.address: used.size for one in found.segments for used in one.used}
        step(found, program, choose, live)
    found.flush()
    return snapshot_of(found, program), held


def step(found: Recorder, program: Program, choose: random.Random, live: list[int]) -> None:
    kind = choose.random()
    if kind < 0.01:
        found.empty_cache()
    elif kind < 0.05 and live and program.num_streams > 1:
        found.record_stream(choose.choice(live), choose.randrange(program.num_streams))
    elif kind < 0.1 and found.waiting:
        found.complete(choose.choice(found.waiting))
    elif live and choose.random() < 0.5 * len(live) / program.most_live + 0.2:
        found.free(live.pop(choose.randrange(len(live))))
    else:
        private = PRIVATE if program.has_private and choose.random() < 0.3 else 0
        if private and private not in found.privates:
            found.add_pool(private)
        with suppress(ReferenceOutOfMemoryError):
            live.append(
                found.malloc(program.sizes(choose), choose.randrange(program.num_streams), private)
            )


def snapshot_of(found: Recorder, program: Program) -> Snapshot:
    entries = found.entries
    pools = ((0, 0), (0, PRIVATE))
    row = {0: 0, PRIVATE: 1}
    segments, blocks = [], []
    for segment in sorted(found.segments, key=lambda one: one.address):
        for start, end in segment.with_memory():
            segments.append((start, end - start, segment))
            blocks += [(len(segments) - 1, *block) for block in blocks_of(segment, start, end)]
    settings = program.settings
    none = np.full(len(entries), -1, np.int32)
    return Snapshot(
        device=0,
        other_devices=(),
        settings={
            "PYTORCH_CUDA_ALLOC_CONF": str(settings) if str(settings) != "default" else "",
            "max_split_size": -1 if settings.max_split_size is None else settings.max_split_size,
            "expandable_segments": settings.expandable_segments,
            "roundup_power2_divisions": {
                str(2**at): number for at, number in enumerate(settings.roundup_power2_divisions)
            },
        },
        annotations=(),
        num_unknown=0,
        action=np.array([ACTIONS.index(entry[0]) for entry in entries], np.uint8),
        address=np.array([entry[1] for entry in entries], np.int64),
        size=np.array([entry[2] for entry in entries], np.int64),
        stream=np.array([entry[3] for entry in entries], np.int64),
        time_us=np.arange(len(entries)),
        trace_pool=np.array([row[entry[4]] for entry in entries], np.int32),
        trace_stack=none,
        segment_address=np.array([one[0] for one in segments], np.int64),
        segment_bytes=np.array([one[1] for one in segments], np.int64),
        segment_stream=np.array([one[2].stream for one in segments], np.int64),
        segment_is_large=np.array([not one[2].is_small for one in segments], np.uint8),
        segment_is_expandable=np.array([one[2].page > 0 for one in segments], np.uint8),
        segment_pool=np.array([row[one[2].private] for one in segments], np.int32),
        segment_stack=np.full(len(segments), -1, np.int32),
        block_segment=np.array([one[0] for one in blocks], np.int32),
        block_address=np.array([one[1] for one in blocks], np.int64),
        block_bytes=np.array([one[2] for one in blocks], np.int64),
        block_requested=np.array([one[3] for one in blocks], np.int64),
        block_state=np.array([one[4] for one in blocks], np.uint8),
        block_stack=np.full(len(blocks), -1, np.int32),
        pools=pools,
        frames=(),
        stack_start=np.zeros(1, np.int64),
        stack_frame=np.zeros(0, np.int32),
    )


def blocks_of(segment: Any, start: int, end: int) -> list[tuple[int, int, int, int]]:
    used = [
        (one.address, one.size, one.requested, PENDING if one.waiting else ALLOCATED)
        for one in segment.used
    ]
    free = [(gap.address, gap.size, 0, FREE) for gap in segment.gaps()]
    return sorted(one for one in [*used, *free] if start <= one[0] < end)
