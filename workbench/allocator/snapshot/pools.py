"""Private pools by their id, each stored once.

An id is a pair of unsigned numbers (``MempoolId_t`` in ``c10/cuda/CUDACachingAllocator.h``), made
by a graph capture or by ``torch.cuda.MemPool``; ``(0, 0)`` is the default pool. Standard library
only.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from workbench.allocator.snapshot.plain import RefusedError, Row, values_of

NO_POOL = -1


class Pools:
    """Pool ids of one snapshot; ``rows`` holds them in the order in which they were first seen."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], int] = {}

    def column(self, rows: Sequence[Row], key: str) -> array[int]:
        """Return the row of each pool; `NO_POOL` if it is not given.

        Raises:
            RefusedError: an id is not a pair of unsigned 64-bit numbers.
        """
        ids = values_of(rows, key)
        if not ids:
            return array("i")
        first = self._row(ids[0])
        if ids.count(ids[0]) == len(ids):  # most programs have one pool
            return array("i", [first]) * len(ids)
        return array("i", map(self._row, ids))

    def _row(self, value: Any) -> int:
        if value is None:
            return NO_POOL
        if type(value) not in (list, tuple) or len(value) != 2:
            raise _refused(value)
        first, second = value
        if type(first) is not int or type(second) is not int:
            raise _refused(value)
        if not (0 <= first < 1 << 64 and 0 <= second < 1 << 64):
            raise RefusedError("the number of a memory pool is outside 64 unsigned bits")
        return self.rows.setdefault((first, second), len(self.rows))


def _refused(value: Any) -> RefusedError:
    kind = type(value).__name__
    return RefusedError(
        f"its schema is not one we know: a pool id of type {kind} is not two numbers"
    )
