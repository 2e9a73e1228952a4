"""Where segments come from: the CUDA driver, as far as the allocator sees it."""

from __future__ import annotations

from workbench.allocator.simulator.settings import GIB, MIB

_FIRST_ADDRESS = 0x7F00_0000_0000
_FIRST_RANGE = 0x3000_0000_0000
_ROOM = 2**44
"""Distance between the addresses of segments and those of ranges."""
_ALIGNMENT = 2 * MIB
DEFAULT_BYTES = 80 * GIB
"""Memory of a device about which nothing is known; only the size of address ranges depends on
it."""


class Device:
    """A GPU with a given amount of memory.

    Args:
        capacity: bytes that can be allocated on it; None: no limit.
        total: bytes of the GPU, which determine the size of the ranges of expandable segments; by
            default the capacity.
        above: addresses up to here are taken.
    """

    def __init__(
        self, capacity: int | None = None, total: int | None = None, above: int = 0
    ) -> None:
        self.capacity = capacity
        self.total = total or capacity or DEFAULT_BYTES
        self.in_use = 0
        """Bytes."""
        above = -(-above // _ALIGNMENT) * _ALIGNMENT
        self._next_address = max(_FIRST_ADDRESS, above)
        self._next_range = max(_FIRST_RANGE, above + _ROOM) if above else _FIRST_RANGE

    def allocate(self, size: int) -> int | None:
        """Return the address of ``size`` new bytes (``cudaMalloc``); None if they do not fit."""
        if not self._take(size):
            return None
        address = self._next_address
        self._next_address += -(-size // _ALIGNMENT) * _ALIGNMENT
        return address

    def free(self, address: int, size: int) -> None:
        """Free ``size`` bytes at ``address`` (``cudaFree``)."""
        del address
        self.in_use -= size

    def reserve(self, size: int) -> int:
        """Reserve a range of ``size`` addresses without memory (``cuMemAddressReserve``)."""
        address = self._next_range
        self._next_range += -(-size // _ALIGNMENT) * _ALIGNMENT
        return address

    def map(self, address: int, size: int) -> bool:
        """Map memory to ``size`` bytes at ``address``; return False if there is not enough."""
        del address
        return self._take(size)

    def unmap(self, address: int, size: int) -> None:
        """Unmap the memory of ``size`` bytes at ``address``."""
        del address
        self.in_use -= size

    def _take(self, size: int) -> bool:
        if self.capacity is not None and self.in_use + size > self.capacity:
            return False
        self.in_use += size
        return True
