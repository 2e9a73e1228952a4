"""How the values of a gradient lie over the powers of ten."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bins = tuple[tuple[int, float], ...]
"""(power, number of values from ``10**power`` up to ``10**(power + 1)``), ascending."""
Floats = npt.NDArray[np.float64]

_MOST_CELLS = 2**22
"""Cells of the table that counts the values of many gradients, 32 MiB."""


def bins_of(values: Floats) -> Bins:
    """How many of ``values`` lie at each power of ten; zeros and non-finite ones are left out."""
    return bins_of_each(values, [0])[0]


def bins_of_each(values: Floats, starts: Sequence[int]) -> list[Bins]:
    """The same of many stretches of ``values``, which begin at ``starts`` (ascending, from 0)."""
    with np.errstate(all="ignore"):
        logs = np.log10(np.abs(values))
    np.floor(logs, out=logs)
    counted = np.isfinite(logs)
    if not counted.any():
        return [()] * len(starts)
    if not counted.all():
        logs = logs[counted]
    powers = logs.astype(np.int64)
    low = int(powers.min())
    width = int(powers.max()) - low + 1
    powers -= low
    if len(starts) == 1:
        counts = np.bincount(powers).tolist()
        return [tuple((low + at, float(n)) for at, n in enumerate(counts) if n)]
    if len(starts) * width > _MOST_CELLS:
        half = len(starts) // 2
        cut = starts[half]
        later = [start - cut for start in starts[half:]]
        return bins_of_each(values[:cut], starts[:half]) + bins_of_each(values[cut:], later)
    lengths = np.diff([*starts, len(values)])
    owners = np.repeat(np.arange(len(starts)) * width, lengths)[counted]
    cells = np.bincount(owners + powers, minlength=len(starts) * width)
    found: list[list[tuple[int, float]]] = [[] for _ in starts]
    full = np.flatnonzero(cells)
    for cell, number in zip(full.tolist(), cells[full].tolist(), strict=True):
        found[cell // width].append((low + cell % width, float(number)))
    return [tuple(bins) for bins in found]


def filled(bins: Bins, number: float) -> Bins:
    """``bins`` of a sample as those of the ``number`` finite values other than 0 that it is of."""
    seen = sum(count for _, count in bins)
    if seen == number:
        return bins
    return tuple((power, count / seen * number) for power, count in bins) if number > 0 else ()


def usable(scale: float) -> float:
    """``scale`` where it can be divided by, else 1."""
    return scale if scale and math.isfinite(scale) else 1.0


def added(many: Sequence[Bins]) -> Bins:
    """The bins of several gradients together."""
    total: dict[int, float] = {}
    for bins in many:
        for power, number in bins:
            total[power] = total.get(power, 0.0) + number
    return tuple(sorted(total.items()))
