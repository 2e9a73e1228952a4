"""Which segments to empty, so that enough bytes are released with as few bytes in use as possible.

A segment is released once its last block is freed, and a request may need several of them: the
knapsack problem, reversed. It is solved exactly, by dynamic programming over the bytes released so
far, because sizes of segments are few different numbers of MiB. Of segments of one size only the
cheapest can be useful, as many as cover the need, which keeps the table small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.allocator.simulator.settings import MIB

_MOST_UNITS, _MOST_SEGMENTS = 4096, 1024
_NEVER = 2**62


def cheapest_to_empty(segments: Sequence[tuple[int, int]], wanted: int) -> list[int] | None:
    """Return the rows of the segments to empty, ascending; None if all of them are too few.

    Their bytes are ``wanted`` or more and no choice has fewer bytes in use, with two limits: beyond
    4 GiB bytes are counted in parts of 1/4096 of ``wanted``, and of more than a thousand segments
    that could be useful those with the least in use per byte are considered. The chosen segments
    are enough in either case.

    Args:
        segments: (bytes, bytes in use) of each.
        wanted: bytes that must be released.
    """
    unit = max(MIB, -(-wanted // _MOST_UNITS))
    need = -(-max(wanted, 0) // unit)
    rows = _of_use([(size // unit, in_use) for size, in_use in segments], need)
    cost = np.full(need + 1, _NEVER, dtype=np.int64)
    cost[0] = 0
    reached = np.arange(need + 1)
    is_taken = np.zeros((len(rows), need + 1), dtype=np.bool_)
    for number, row in enumerate(rows):
        size, in_use = segments[row][0] // unit, segments[row][1]
        with_it = cost[np.maximum(reached - size, 0)] + in_use
        is_taken[number] = with_it < cost
        cost = np.minimum(cost, with_it)
    if cost[need] >= _NEVER:
        return None
    chosen: list[int] = []
    for number in reversed(range(len(rows))):
        if is_taken[number, need]:
            chosen.append(rows[number])
            need = max(0, need - segments[rows[number]][0] // unit)
    return sorted(chosen)


def _of_use(segments: list[tuple[int, int]], need: int) -> list[int]:
    """Return rows, without those that cheaper segments of the same size make useless."""
    by_size: dict[int, list[int]] = {}
    for row, (size, _) in enumerate(segments):
        if size:
            by_size.setdefault(min(size, need), []).append(row)
    kept: list[int] = []
    for size, rows in by_size.items():
        rows.sort(key=lambda row: segments[row][1])
        kept += rows[: -(-need // size) if size else 0]
    kept.sort(key=lambda row: segments[row][1] / segments[row][0])
    return kept[:_MOST_SEGMENTS]
