"""How large a block, and a segment for it, is made for a request.

``DeviceCachingAllocator::round_size`` and ``get_allocation_size`` in
``c10/cuda/CUDACachingAllocator.cpp``.
"""

from __future__ import annotations

from workbench.allocator.settings import MIB, NUM_DIVISIONS, AllocatorSettings

MIN_BLOCK = 512
"""Bytes that every size is a multiple of."""
SMALL_SIZE = MIB
"""Bytes up to which a block comes from the small pool."""
SMALL_SEGMENT = 2 * MIB
_MIN_LARGE_ALLOC = 10 * MIB
_ROUND_LARGE = 2 * MIB


def round_size(requested: int, settings: AllocatorSettings) -> int:
    """Bytes of a block for ``requested`` bytes (at least 1)."""
    if requested < MIN_BLOCK:
        return MIN_BLOCK
    divisions = _divisions(requested, settings)
    if divisions > 1 and requested > MIN_BLOCK * divisions:
        return _round_within_power(requested, divisions)
    return -(-requested // MIN_BLOCK) * MIN_BLOCK


def segment_size(size: int, settings: AllocatorSettings) -> int:
    """Bytes of a new segment for a block of ``size`` bytes."""
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < _MIN_LARGE_ALLOC:
        return settings.large_segment_size
    return -(-size // _ROUND_LARGE) * _ROUND_LARGE


def _divisions(size: int, settings: AllocatorSettings) -> int:
    interval = size.bit_length() - MIB.bit_length()
    return settings.roundup_power2_divisions[min(max(interval, 0), NUM_DIVISIONS - 1)]


def _round_within_power(size: int, divisions: int) -> int:
    if not size & (size - 1):
        return size
    floor = 1 << (size.bit_length() - 1)
    step = floor >> (divisions.bit_length() - 1)
    return -(-size // step) * step if step else 2 * floor
