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
    """Raised if the simulator did something that is not in the trace."""


class RecordedDevice(Device):
    """A device that answers as the driver did, and checks what is requested.

    A request for memory fails if the trace releases segments next: the allocator did so because the
    driver had no more.

    Args:
        above: addresses up to here are in the trace; what it does not name is beyond.
    """

    def __init__(self, above: int = 0) -> None:
        super().__init__(above=above)
        self.expected: deque[tuple[int, int, int]] = deque()
        """The next segment entries of the trace, as (action, address, bytes)."""
        self.is_full = False
        """Whether a request fails that is not in the trace."""
        self.num_new = self.num_released = 0
        """Segments, or ranges of pages, that were allocated and released as in the trace."""

    def allocate(self, size: int) -> int | None:
        """Return the address of the trace's next segment."""
        return self._new(SEGMENT_ALLOC, size)

    def map(self, address: int, size: int) -> bool:
        """Return whether the trace maps these pages next."""
        there = self._new(SEGMENT_MAP, size)
        if there is not None and there != address:
            raise DifferenceError(f"pages at {address:#x} are mapped, not at {there:#x}")
        return there is not None

    def reserve(self, size: int) -> int:
        """Return the address of the first pages that the trace maps next."""
        return self.expected[0][1] if self.expected else super().reserve(size)

    def free(self, address: int, size: int) -> None:
        """Compare a segment that is released."""
        self._released(SEGMENT_FREE, size, address)

    def unmap(self, address: int, size: int) -> None:
        """Compare pages that are released."""
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
