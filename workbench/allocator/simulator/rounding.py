"""The size of a block, and of a segment for it, that is allocated for a request.

``DeviceCachingAllocator::round_size`` and ``get_allocation_size`` in
``c10/cuda/CUDACachingAllocator.cpp``.
"""

from __future__ import annotations

import numpy as np

from workbench.allocator.simulator.settings import MIB, NUM_DIVISIONS, AllocatorSettings
from workbench.allocator.snapshot.snapshot import I64

MIN_BLOCK = 512
"""Bytes that every size is a multiple of."""
SMALL_SIZE = MIB
"""Bytes up to which a block comes from the small pool."""
SMALL_SEGMENT = 2 * MIB
_MIN_LARGE_ALLOC = 10 * MIB
_ROUND_LARGE = 2 * MIB
_LARGEST = 2**62
"""Bytes whose rounding still fits into 64 bits; a file may contain any number."""


def round_size(requested: int, settings: AllocatorSettings) -> int:
    """Return the bytes of a block for ``requested`` bytes (at least 1)."""
    if requested < MIN_BLOCK:
        return MIN_BLOCK
    divisions = _divisions(requested, settings)
    if divisions > 1 and requested > MIN_BLOCK * divisions:
        return _round_within_power(requested, divisions)
    return -(-requested // MIN_BLOCK) * MIN_BLOCK


def round_sizes(requested: I64, settings: AllocatorSettings) -> I64:
    """Return `round_size` of each entry; 0 counts as 1, anything above 2**62 as that."""
    clipped = np.clip(np.asarray(requested, dtype=np.int64), 1, _LARGEST)
    sizes = np.maximum(MIN_BLOCK, -(-clipped // MIN_BLOCK) * MIN_BLOCK)
    if not any(settings.roundup_power2_divisions):
        return sizes
    # A program requests few different sizes, so each of these is computed once.
    rows = np.flatnonzero(clipped > MIN_BLOCK)
    different, row = np.unique(clipped[rows], return_inverse=True)
    divided = [round_size(size, settings) for size in different.tolist()]
    sizes[rows] = np.array(divided, dtype=np.int64)[row]
    return sizes


def segment_size(size: int, settings: AllocatorSettings) -> int:
    """Return the bytes of a new segment for a block of ``size`` bytes."""
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
