"""The columns of a gradient flow in bounded memory, for runs that last days.

When `CAPACITY` columns are reached, every second one of the older columns is dropped and the newest
are kept as they are: resolution decreases with age. A step with a non-finite gradient is never
dropped as long as such steps are few.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from workbench.gradient_flow.module_rows import MAX_ROWS, Rows
from workbench.records import NOT_MEASURED, FlowRow

CAPACITY = 4096
"""Maximum number of columns kept; a column of 24 rows takes 104 bytes."""
NEWEST = 1024
"""Number of newest columns, which are never thinned out."""
_MAX_ROWS = 4 * MAX_ROWS
"""Maximum number of rows, including those of models that were swapped out."""

Columns = tuple[tuple[FlowRow, ...], npt.NDArray[np.int64], npt.NDArray[np.float32]]
"""(rows, steps ``[columns]``, norms ``[rows, columns]``)"""


class FlowHistory:
    """Norms by row and step; a row continues under its name when the model changes."""

    def __init__(self) -> None:
        self.total = 0
        """Number of columns so far, including those that were thinned out."""
        self.notes: list[str] = []
        self._rows: list[FlowRow] = []
        self._placed: Rows | None = None
        self._places = np.empty(0, np.int64)
        self._steps = array("q")
        self._norms = np.empty((CAPACITY, 0), np.float32)

    def append(self, step: int, rows: Rows, norms: npt.NDArray[np.float32]) -> None:
        """Add a column: one norm for each of ``rows``."""
        if self._placed is not rows:
            self._place(rows)
        if len(self._steps) == CAPACITY:
            self._thin_out()
        column = self._norms[len(self._steps)]
        column[:] = NOT_MEASURED
        column[self._places] = norms
        self._steps.append(step)
        self.total += 1

    def columns(self) -> Columns:
        """Copies of everything kept, without rows that were never measured."""
        norms = self._norms[: len(self._steps)].T
        used = [at for at, row in enumerate(norms) if (row != NOT_MEASURED).any()]
        steps = np.array(self._steps, np.int64)
        return tuple(self._rows[at] for at in used), steps, norms[used]

    def _place(self, rows: Rows) -> None:
        """Assign each of ``rows`` a position: that of the same name, else a new one."""
        names = {_name(row): at for at, row in enumerate(self._rows)}
        fresh = sum(_name(row) not in names for row in rows.rows)
        if len(self._rows) + fresh > _MAX_ROWS:
            names = self._forget_all_but({_name(row) for row in rows.rows})
        for row in rows.rows:
            at = names.setdefault(_name(row), len(names))
            self._rows[at : at + 1] = [row]
        added = len(self._rows) - self._norms.shape[1]
        blank = np.full((CAPACITY, added), NOT_MEASURED, np.float32)
        self._norms = np.ascontiguousarray(np.hstack([self._norms, blank]))
        self._places = np.array([names[_name(row)] for row in rows.rows], np.int64)
        self._placed = rows

    def _forget_all_but(self, current: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
        kept = [at for at, row in enumerate(self._rows) if _name(row) in current]
        self._rows = [self._rows[at] for at in kept]
        self._norms = self._norms[:, kept]
        self.notes = ["the rows of earlier models were forgotten to make room"]
        return {_name(row): at for at, row in enumerate(self._rows)}

    def _thin_out(self) -> None:
        count, old = len(self._steps), len(self._steps) - NEWEST
        keep = np.ones(count, bool)
        bad = np.asarray(np.isposinf(self._norms[:old]).any(axis=1))
        keep[1:old:2] = bad[1::2]
        keep[0:old:2] = bad[0::2] | ~bad[1::2]
        if keep.sum() > CAPACITY - old // 4:  # most steps are non-finite: all are treated alike
            keep[1:old:2], keep[0:old:2] = False, True
        keep[0] = True
        left = int(keep.sum())
        self._norms[:left] = self._norms[:count][keep]
        self._steps = array("q", np.array(self._steps, np.int64)[keep].tobytes())


def _name(row: FlowRow) -> tuple[str, str]:
    return row.path, row.label
