"""Private pools by their id, each kept once.

An id is a pair of unsigned numbers (``MempoolId_t`` in ``c10/cuda/CUDACachingAllocator.h``), made
by a graph capture or by ``torch.cuda.MemPool``; ``(0, 0)`` is the default pool. Standard library
only.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any

from workbench.allocator.plain import RefusedError, Row

NO_POOL = -1


class Pools:
    """Pool ids of one snapshot; ``rows`` holds them in the order in which they were first met."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], int] = {}

    def column(self, rows: Sequence[Row], key: str) -> array[int]:
        """The row of each pool; `NO_POOL` where it is not said.

        Raises:
            RefusedError: an id is no pair of unsigned 64-bit numbers.
        """
        ids = [row.get(key) for row in rows]
        if set(map(type, ids)) <= {type(None)}:
            return array("i", [NO_POOL]) * len(ids)
        if not _all_pairs(ids):
            ids = [_pair(one) for one in ids]
        for one in dict.fromkeys(ids):
            if one is not None and not 0 <= min(one) <= max(one) < 1 << 64:
                raise RefusedError(f"a {key!r} is outside 64 unsigned bits")
        row_of = {
            one: NO_POOL if one is None else self.rows.setdefault(one, len(self.rows))
            for one in dict.fromkeys(ids)
        }
        return array("i", map(row_of.__getitem__, ids))


def _all_pairs(ids: list[Any]) -> bool:
    """Whether these are pairs of whole numbers throughout; only then is it safe to hash them."""
    return (
        set(map(type, ids)) == {tuple}
        and set(map(len, ids)) == {2}
        and set(map(type, chain.from_iterable(ids))) == {int}
    )


def _pair(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    if type(value) in (list, tuple) and len(value) == 2 and {type(n) for n in value} == {int}:
        return value[0], value[1]
    raise RefusedError("its schema is not one we know: a pool id is no pair of whole numbers")
