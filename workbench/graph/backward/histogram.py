"""How the values of a gradient lie over the powers of ten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from torch import Tensor

Bins = Sequence[tuple[int, float]]
"""(power, number of values from ``10**power`` up to ``10**(power + 1)``), ascending."""
Floats = npt.NDArray[np.float64]

_NONE, _UNSURE = 2**14, 2**14 + 1
"""In place of a power: of a value that is not counted, of bits that do not tell."""
_LOWER = 16
"""Bits of a float32 that are not looked at."""
_ROOM = 2**16
"""Values in the buffer, half a megabyte."""
_MOST_CELLS = 2**22
"""Cells of the table that counts the values of many gradients, 32 MiB."""


def bins_of_each(values: Floats, starts: Sequence[int]) -> list[Bins]:
    """How many values lie at each power of ten; zeros and non-finite ones are left out.

    Args:
        values: those of many gradients, end to end.
        starts: where each of them begins, ascending, from 0.
    """
    powers = _powers_of(np.abs(values))
    counted = powers != _NONE
    if not counted.any():
        return [()] * len(starts)
    low = int(powers.min())
    powers = np.where(counted, powers - low, np.int16(-1))
    width = int(powers.max()) + 2  # the first cell: not counted
    if len(starts) * width > _MOST_CELLS:
        half = len(starts) // 2
        cut = starts[half]
        later = [start - cut for start in starts[half:]]
        return bins_of_each(values[:cut], starts[:half]) + bins_of_each(values[cut:], later)
    lengths = np.diff(starts, append=len(values))
    cells = np.repeat(np.arange(len(starts)) * width + 1, lengths)
    cells += powers
    found: list[list[tuple[int, float]]] = [[] for _ in starts]
    counts = np.bincount(cells, minlength=len(starts) * width).reshape(-1, width)[:, 1:]
    for row, at in np.argwhere(counts).tolist():
        found[row].append((low + at, float(counts[row, at])))
    return [tuple(bins) for bins in found]


def _powers_of(sizes: Floats) -> npt.NDArray[np.int16]:
    """``floor(log10(size))`` of each; `_NONE` for 0 and what is not finite.

    Looked up by the upper half of the bits of a float32, and among the powers themselves only where
    these bits do not tell.
    """
    with np.errstate(over="ignore", under="ignore"):
        bits = sizes.astype(np.float32).view(np.uint32)
    bits >>= _LOWER
    powers = _POWERS.take(bits)
    unsure = np.flatnonzero((powers == _UNSURE) & (sizes > 0))
    rest = sizes.take(unsure)
    powers[unsure] = np.where(rest < np.inf, _exactly(rest), _NONE)  # NaN is not > 0
    powers[powers == _UNSURE] = _NONE
    return powers


def filled(bins: Bins, number: float) -> Bins:
    """``bins`` of a sample as those of the ``number`` finite values other than 0 that it is of."""
    seen = sum(count for _, count in bins)
    if seen == number:
        return bins
    return tuple((power, count / seen * number) for power, count in bins) if number > 0 else ()


def usable(scale: float) -> float:
    """``scale`` where it can be divided by, else 1."""
    return scale if scale and math.isfinite(scale) else 1.0


class Histograms:
    """Samples whose values are counted together, which takes a third of the time of one by one."""

    def __init__(self) -> None:
        self.unit = 1.0
        """What magnitudes are divided by."""
        self._buffer: Tensor | None = None
        self._end = 0
        self._waiting: list[tuple[int, list[tuple[int, float]], float]] = []
        """Where a sample begins, its bins to come, and how many values these are of."""

    def room(self, size: int) -> Tensor:
        """Where the next sample, of ``size`` values, is to be written; on the CPU, in float64."""
        if self._buffer is None or self._end + size > len(self._buffer):
            self._count()
            self._buffer = torch.empty(max(size, _ROOM), dtype=torch.float64, device="cpu")
        return self._buffer[self._end : self._end + size]

    def add(self, size: int, number: float) -> list[tuple[int, float]]:
        """The bins of ``number`` values by the sample in the `room`; empty until `read`."""
        bins: list[tuple[int, float]] = []
        self._waiting.append((self._end, bins, number))
        self._end += size
        return bins

    def read(self) -> None:
        """Fill in what `add` gave; lets go of the buffer."""
        self._count()
        self._buffer = None

    def _count(self) -> None:
        if self._buffer is None or not self._waiting:
            return
        values = self._buffer[: self._end].numpy()
        starts = [start for start, _, _ in self._waiting]
        found = bins_of_each(values if self.unit == 1 else values / self.unit, starts)
        for (_, bins, number), counts in zip(self._waiting, found, strict=True):
            bins.extend(filled(counts, number))
        self._waiting, self._end = [], 0


_LOWEST = -324
_TENS = np.array([float(f"1e{power}") for power in range(_LOWEST + 1, 309)])


def _exactly(sizes: Floats) -> npt.NDArray[np.intp]:
    return _TENS.searchsorted(sizes, side="right") + _LOWEST


def _table() -> npt.NDArray[np.int16]:
    """The power of ten of every float32 with these upper bits, where it is the same for all.

    A power of ten on the edge makes both sides unsure: a float64 is rounded before it is looked up.
    """
    first = np.arange(2 ** (31 - _LOWER) + 1, dtype=np.uint32) << _LOWER
    with np.errstate(invalid="ignore"):  # those that are NaN
        edges = first.view(np.float32).astype(np.float64)
    low, high = _exactly(edges[:-1] * (1 - _ROUNDED)), _exactly(edges[1:] * (1 + _ROUNDED))
    table = np.full(len(first) - 1, _UNSURE, np.int16)
    sure = (low == high) & (edges[:-1] >= np.finfo(np.float32).tiny) & (edges[1:] < np.inf)
    table[sure] = low[sure]
    return table


_ROUNDED = 2.0**-23
"""At most what rounding to float32 moves a normal number by, as a part of it."""
_POWERS = _table()


def added(many: Sequence[Bins]) -> Bins:
    """The bins of several gradients together."""
    total: dict[int, float] = {}
    for bins in many:
        for power, number in bins:
            total[power] = total.get(power, 0.0) + number
    return tuple(sorted(total.items()))
