"""Small gradients on the CPU, measured together.

The backward pass of a deep graph computes thousands of gradients of a few hundred values, and
measuring them one at a time takes ten calls each. So they are copied, end to end, into one buffer,
which is measured segment by segment when it is full or the backward pass has ended.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from workbench.graph.backward.gradient_stats import FLOATS, MOST_ROWS, Statistics
from workbench.graph.backward.histogram import Floats, bins_of_each

if TYPE_CHECKING:
    from torch import Tensor

MOST_VALUES = 2**11
"""Maximum number of values of a small gradient."""
_ROOM = 2**16
"""Number of values in the buffer, half a megabyte."""


class _Segment(NamedTuple):
    row: int
    start: int
    num_samples: int
    """Length of the first dimension if that is the batch, else 0."""


class SmallGradients:
    """Copies of small gradients that are not measured yet."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self._end = 0
        self._segments: list[_Segment] = []
        self._found: list[tuple[int, Statistics]] = []
        self.unit = 1.0
        """Divisor of the magnitudes in the histograms."""

    def add(self, row: int, gradient: Tensor, *, has_rows: bool) -> bool:
        """Keep a copy of ``gradient``; returns False if it is not small and plain.

        Args:
            row: row of the node that received the gradient.
            gradient: a strided tensor on the CPU.
            has_rows: whether its first dimension is the batch.
        """
        count = gradient.numel()
        if not 0 < count <= MOST_VALUES or gradient.dtype not in FLOATS:
            return False
        if self._buffer is None:
            self._buffer = torch.empty(_ROOM, dtype=torch.float64, device="cpu")
        if self._end + count > _ROOM:
            self._measure()
        start, self._end = self._end, self._end + count
        values = gradient.detach() if gradient.requires_grad else gradient
        self._buffer[start : self._end] = values.reshape(-1)
        self._segments.append(_Segment(row, start, gradient.shape[0] if has_rows else 0))
        return True

    def read(self) -> list[tuple[int, Statistics]]:
        """(row, statistics) of everything that was added; releases the buffer."""
        self._measure()
        found, self._found, self._buffer = self._found, [], None
        return found

    def _measure(self) -> None:
        if self._buffer is None or not self._segments:
            return
        values: Floats = self._buffer[: self._end].numpy()
        starts = np.array([segment.start for segment in self._segments])
        with np.errstate(all="ignore"):
            squares = np.add.reduceat(values * values, starts).tolist()
            largest = np.maximum.reduceat(np.abs(values), starts).tolist()
        zeros = np.add.reduceat(values == 0, starts, dtype=np.int64).tolist()
        bad = np.add.reduceat(~np.isfinite(values), starts, dtype=np.int64).tolist()
        ends = [*starts[1:].tolist(), self._end]
        bins = bins_of_each(values if self.unit == 1 else values / self.unit, starts.tolist())
        for at, (row, start, num_samples) in enumerate(self._segments):
            own = values[start : ends[at]]
            norm = math.sqrt(squares[at])
            if largest[at] and not bad[at] and not 1e-150 < norm < 1e150:  # squares left the range
                norm = largest[at] * float(np.linalg.norm(own / largest[at]))
            rows = _rows(own, num_samples) if bad[at] and num_samples else ()
            found = Statistics(
                norm, largest[at], float(zeros[at]), bad[at], len(own), rows, bins[at]
            )
            self._found.append((row, found))
        self._segments, self._end = [], 0


def _rows(values: Floats, num_samples: int) -> tuple[int, ...]:
    bad = ~np.isfinite(values).reshape(num_samples, -1).all(axis=1)
    return tuple(np.flatnonzero(bad)[:MOST_ROWS].tolist())
