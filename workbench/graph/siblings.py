"""Which equal sibling modules ran one after the other: the static picture rolls those up.

Equal neighbours in a `ModuleList` are one card only where nothing else ran between them. With an
early exit after its first block, the card of all blocks would feed the exit and the head alike, as
if the exit came last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from workbench.records import GraphRecord

_Rows = npt.NDArray[np.int32] | npt.NDArray[np.int64]


def as_they_ran(
    record: GraphRecord, owners: _Rows, parent: int, alike: Callable[[int], Hashable]
) -> list[list[int]]:
    """Children of ``parent`` in forward order, in runs.

    A run is of children that are equal by ``alike`` and between whose first calls nothing else ran:
    no operation of ``parent`` itself, nor of a module elsewhere.

    Args:
        record: a captured graph.
        owners: the module of each operation, in forward order; -1 for none.
        parent: a row of ``record.modules``; -1 for what has no parent.
        alike: equal for modules that may be in one run.
    """
    found: list[list[int]] = []
    run_of: dict[int, int] = {}
    before = -1
    for row, _ in groupby(_child_that_ran(record, owners, parent).tolist()):
        if row >= 0 and row not in run_of:
            follows = before >= 0 and run_of[before] == len(found) - 1
            if not (follows and alike(before) == alike(row)):
                found.append([])
            found[-1].append(row)
            run_of[row] = len(found) - 1
        before = row
    return found


def _child_that_ran(record: GraphRecord, owners: _Rows, parent: int) -> _Rows:
    """Per operation the child of ``parent`` that it ran in, -1 where in none."""
    child = np.full(len(record.modules) + 1, -1, dtype=np.int64)  # the last for no module
    for row, module in enumerate(record.modules):  # parents come first in the table
        child[row] = row if module.parent == parent else child[module.parent]
    return child[owners]
