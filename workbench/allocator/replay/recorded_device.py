"""The driver as a trace recorded it."""

from __future__ import annotations

from collections import deque

from workbench.allocator.simulator.device import Device
from workbench.allocator.snapshot.snapshot import (
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
)

RELEASES = (SEGMENT_FREE, SEGMENT_UNMAP)


class DifferenceError(Exception):
    """The simulator did something that the trace does not say."""


class RecordedDevice(Device):
    """A device that answers as the driver did, and checks what it is asked.

    A request for memory fails where the trace gives segments back next: that is what the allocator
    did because the driver had no more.

    Args:
        above: addresses up to here are in the trace; what it does not name lies beyond.
    """

    def __init__(self, above: int = 0) -> None:
        super().__init__(above=above)
        self.expected: deque[tuple[int, int, int]] = deque()
        """(action, address, bytes) of what the trace says about segments next."""
        self.is_full = False
        """Whether a request fails that the trace says nothing of."""
        self.num_new = self.num_released = 0
        """Segments, or stretches of pages, that came and went as in the trace."""

    def allocate(self, size: int) -> int | None:
        """The address that the trace gives the next segment."""
        return self._new(SEGMENT_ALLOC, size)

    def map(self, address: int, size: int) -> bool:
        """Whether the trace maps these pages next."""
        there = self._new(SEGMENT_MAP, size)
        if there is not None and there != address:
            raise DifferenceError(f"pages at {address:#x} are mapped, not at {there:#x}")
        return there is not None

    def reserve(self, size: int) -> int:
        """The address of the first pages that the trace maps next."""
        return self.expected[0][1] if self.expected else super().reserve(size)

    def free(self, address: int, size: int) -> None:
        """Compare a segment that is given back."""
        self._released(SEGMENT_FREE, size, address)

    def unmap(self, address: int, size: int) -> None:
        """Compare pages that are given back."""
        self._released(SEGMENT_UNMAP, size, address)

    def _new(self, action: int, size: int) -> int | None:
        if self.expected and self.expected[0][0] in RELEASES:
            return None
        if not self.expected and self.is_full:
            return None
        if not self.expected:
            raise DifferenceError(f"a new segment of {size:,} B, where the trace has none")
        found, address, expected = self.expected.popleft()
        if (found, expected) != (action, size):
            raise DifferenceError(f"a new segment of {size:,} B, not of {expected:,} B")
        self.num_new += 1
        return address

    def _released(self, action: int, size: int, address: int) -> None:
        if not self.expected:
            raise DifferenceError(f"{size:,} B are given back, where the trace keeps them")
        found, there, expected = self.expected.popleft()
        if (found, expected) != (action, size) or address != there:
            raise DifferenceError(
                f"{size:,} B are given back, where the trace gives {expected:,} B at {there:#x}"
            )
        self.num_released += 1
