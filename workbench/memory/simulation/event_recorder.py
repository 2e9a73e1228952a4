"""An allocator that records what it does: events, blocks and segments, as a record has them.

A `RecordingAllocator` is a `CachingAllocator` on a `RecordingDevice`; both report to one
`EventRecorder`. The program reports which of its blocks and events is current
(`EventRecorder.set_current`), the rest comes from the
allocator: addresses, sizes, which segments are allocated and released, and which waiting blocks are
freed because memory ran short.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from workbench.allocator.simulator.device import Device
from workbench.allocator.simulator.rounding import SMALL_SIZE, round_size
from workbench.allocator.simulator.settings import AllocatorSettings
from workbench.allocator.simulator.simulator import CachingAllocator
from workbench.allocator.snapshot.snapshot import I64
from workbench.records import EVENT_KINDS

_KIND = {name: row for row, name in enumerate(EVENT_KINDS)}
BEFORE = -1
"""The event of what happens before a recording begins."""


@dataclass(frozen=True)
class Piece:
    """A segment, or a range of mapped pages, for some time."""

    start: int
    address: int
    size: int
    stream: int
    is_large: bool
    is_expandable: bool
    private: int
    end: int = -1


class EventRecorder:
    """What happened, numbered from 0.

    Args:
        num_blocks: the number of rows of the program.
    """

    def __init__(self, num_blocks: int) -> None:
        self.kinds: list[int] = []
        """For each event, its row in `EVENT_KINDS`."""
        self.origins: list[int] = []
        """For each event, the event of the program that it belongs to."""
        self.pieces: list[Piece] = []
        """Released pieces; those still held are in `held`."""
        self.held: dict[int, Piece] = {}
        """By address."""
        self.row_at: dict[int, int] = {}
        """Address -> row of the block that has it."""
        self.start, self.end, self.pending, self.address, self.size = (
            np.full(num_blocks, -1, dtype=np.int64) for _ in range(5)
        )
        self.request = Piece(-1, 0, 0, 0, is_large=False, is_expandable=False, private=0)
        """The properties of a piece that is allocated now."""
        self._row = -1
        self._origin = BEFORE

    def set_current(self, row: int, event: int) -> None:
        """Report that the program is at ``event``, about the block of ``row``."""
        self._row, self._origin = row, event

    def add_event(self, kind: str, *, last: bool = False) -> int:
        """Add an event and return its number; -1 before the recording begins.

        Args:
            kind: one of `EVENT_KINDS`.
            last: whether nothing follows: then it is an event even if nothing had begun.
        """
        if self._origin == BEFORE and not last:
            return BEFORE
        self.kinds.append(_KIND[kind])
        self.origins.append(max(self._origin, 0))
        return len(self.kinds) - 1

    def block_allocated(self, address: int, size: int) -> None:
        """Record that the current block was given ``size`` bytes at ``address``."""
        row = self._row
        self.start[row] = self.add_event("alloc")
        self.address[row], self.size[row] = address, size
        self.row_at[address] = row

    def free_requested(self, address: int) -> None:
        """Record that the program freed the block at ``address``, which a stream may still use."""
        self.pending[self.row_at[address]] = self.add_event("free_requested")

    def block_freed(self, address: int) -> None:
        """Record that the block at ``address`` is free."""
        self.end[self.row_at.pop(address)] = self.add_event("free")

    def segment_allocated(self, kind: str, address: int, size: int) -> None:
        """Record that the allocator allocated memory from the driver."""
        start = self.add_event(kind)
        expandable = kind == "segment_map"
        self.held[address] = replace(
            self.request, start=start, address=address, size=size, is_expandable=expandable
        )

    def segment_released(self, kind: str, address: int, size: int) -> None:
        """Record that the allocator released memory: a piece, its middle, or several pieces."""
        event, end = self.add_event(kind), address + size
        for piece in self._held_between(address, end):
            del self.held[piece.address]
            low, high = max(piece.address, address), min(piece.address + piece.size, end)
            for left, right in ((piece.address, low), (high, piece.address + piece.size)):
                if left < right:
                    self.held[left] = replace(piece, address=left, size=right - left)
            if event > piece.start:  # else it was allocated and released before the recording
                self.pieces.append(replace(piece, address=low, size=high - low, end=event))

    def _held_between(self, address: int, end: int) -> list[Piece]:
        piece = self.held.get(address)
        if piece is not None and address + piece.size >= end:
            return [piece]
        return [p for p in self.held.values() if p.address < end and address < p.address + p.size]

    def all_pieces(self) -> list[Piece]:
        """Return released and held pieces, in order of start and address."""
        found = [*self.pieces, *self.held.values()]
        return sorted(found, key=lambda piece: (piece.start, piece.address))

    def number_of(self, events: I64) -> I64:
        """Map events of the program to recorded events: the first event that is not before each."""
        return np.searchsorted(np.array(self.origins, dtype=np.int64), events, side="left")


class RecordingDevice(Device):
    """A device that reports to an event recorder what it grants."""

    recorder: EventRecorder

    def allocate(self, size: int) -> int | None:
        """Allocate a new segment."""
        address = super().allocate(size)
        if address is not None:
            self.recorder.segment_allocated("segment_alloc", address, size)
        return address

    def free(self, address: int, size: int) -> None:
        """Release a segment."""
        super().free(address, size)
        self.recorder.segment_released("segment_free", address, size)

    def map(self, address: int, size: int) -> bool:
        """Map pages into a range."""
        is_granted = super().map(address, size)
        if is_granted:
            self.recorder.segment_allocated("segment_map", address, size)
        return is_granted

    def unmap(self, address: int, size: int) -> None:
        """Unmap pages."""
        super().unmap(address, size)
        self.recorder.segment_released("segment_unmap", address, size)


class RecordingAllocator(CachingAllocator):
    """An allocator that keeps a recorder."""

    def __init__(
        self,
        settings: AllocatorSettings,
        device: RecordingDevice,
        *,
        allowed: int | None,
        recorder: EventRecorder,
    ) -> None:
        device.recorder = self.recorder = recorder
        super().__init__(settings, device, allowed=allowed)

    def malloc(
        self, requested: int, stream: int = 0, private: int = 0, *, search: bool = True
    ) -> int:
        """Allocate a block for the current row."""
        is_large = round_size(requested, self.settings) > SMALL_SIZE
        self.recorder.request = replace(
            self.recorder.request, stream=stream, private=private, is_large=is_large
        )
        address = super().malloc(requested, stream, private, search=search)
        self.recorder.block_allocated(address, self.blocks[address].size)
        return address

    def free(self, address: int) -> None:
        """Free a block of the program."""
        waits = bool(self.blocks[address].streams)
        if waits:
            self.recorder.free_requested(address)
        else:
            self.recorder.block_freed(address)
        super().free(address)

    def complete(self, address: int) -> None:
        """Free a block that waited."""
        self.recorder.block_freed(address)
        super().complete(address)
