"""Histogram of the values of a gradient over the powers of ten."""

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
"""Placeholders for a power: of a value that is not counted, of bits that do not determine it."""
_LOWER = 16
"""Number of low bits of a float32 that are ignored."""
_ROOM = 2**16
"""Number of values in the buffer, half a megabyte."""
_MOST_CELLS = 2**22
"""Maximum number of cells in the table that counts the values of many gradients, 32 MiB."""


def bins_of_each(values: Floats, starts: Sequence[int]) -> list[Bins]:
    """Count the values at each power of ten; zeros and non-finite values are left out.

    Args:
        values: values of many gradients, end to end.
        starts: index at which each gradient begins, ascending, from 0.
    """
    powers = _powers_of(np.abs(values))
    counted = powers != _NONE
    if not counted.any():
        return [()] * len(starts)
    low = int(powers.min())
    powers = np.where(counted, powers - low, np.int16(-1))
    width = int(powers.max()) + 2  # the first cell is for uncounted values
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
    """``floor(log10(size))`` of each; `_NONE` for 0 and non-finite values.

    Powers are looked up by the upper half of the bits of a float32. Only where these bits do not
    determine the power is it searched for among the powers themselves.
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
    """Scale ``bins`` of a sample to the ``number`` finite non-zero values that it represents."""
    seen = sum(count for _, count in bins)
    if seen == number:
        return bins
    return tuple((power, count / seen * number) for power, count in bins) if number > 0 else ()


def usable(scale: float) -> float:
    """``scale`` if it can be used as a divisor, else 1."""
    return scale if scale and math.isfinite(scale) else 1.0


class Histograms:
    """Samples whose values are counted together, in a third of the time of counting each alone."""

    def __init__(self) -> None:
        self.unit = 1.0
        """Divisor of the magnitudes."""
        self._buffer: Tensor | None = None
        self._end = 0
        self._waiting: list[tuple[int, list[tuple[int, float]], float]] = []
        """Start of each sample, its bins to be filled in, and the number of values they
        represent."""

    def room(self, size: int) -> Tensor:
        """Buffer for the next sample, of ``size`` values; on the CPU, in float64."""
        if self._buffer is None or self._end + size > len(self._buffer):
            self._count()
            self._buffer = torch.empty(max(size, _ROOM), dtype=torch.float64, device="cpu")
        return self._buffer[self._end : self._end + size]

    def add(self, size: int, number: float) -> list[tuple[int, float]]:
        """Bins of ``number`` values from the sample in the `room`; empty until `read`."""
        bins: list[tuple[int, float]] = []
        self._waiting.append((self._end, bins, number))
        self._end += size
        return bins

    def read(self) -> None:
        """Fill in the bins that `add` returned and release the buffer."""
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
    """Power of ten of the float32 values with given upper bits, if it is the same for all of them.

    A power of ten at a boundary makes both sides undetermined: a float64 is rounded before it is
    looked up.
    """
    first = np.arange(2 ** (31 - _LOWER) + 1, dtype=np.uint32) << _LOWER
    with np.errstate(invalid="ignore"):  # some are NaN
        edges = first.view(np.float32).astype(np.float64)
    low, high = _exactly(edges[:-1] * (1 - _ROUNDED)), _exactly(edges[1:] * (1 + _ROUNDED))
    table = np.full(len(first) - 1, _UNSURE, np.int16)
    sure = (low == high) & (edges[:-1] >= np.finfo(np.float32).tiny) & (edges[1:] < np.inf)
    table[sure] = low[sure]
    return table


_ROUNDED = 2.0**-23
"""Maximum relative change of a normal number when it is rounded to float32."""
_POWERS = _table()


def added(many: Sequence[Bins]) -> Bins:
    """The bins of several gradients, added up."""
    total: dict[int, float] = {}
    for bins in many:
        for power, number in bins:
            total[power] = total.get(power, 0.0) + number
    return tuple(sorted(total.items()))
