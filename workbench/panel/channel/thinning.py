"""Fewer points of a long curve, without losing what a person looks for in it.

Rows are cut into buckets, and each keeps its lowest and its highest finite value and the first
that is not finite: a spike of one step, and a NaN of one step, are seen whatever is left out. Who
smooths does so before: an average of extremes is none. ``extensions/views/src/kernel`` does the
same with what a page holds (``thin.ts``, ``average.ts``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

WEIGHT = 0.12
"""Of the newest value in the moving average."""
_KEPT = 3
"""Of each bucket, at most."""
_AT_ONCE = 128
"""Values whose average is computed in one go; 0.88 to that power is 8e-8, far from the smallest
number there is."""


def kept_rows(values: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.intp]:
    """Which of ``values`` to keep, in their order, the first and the last among them.

    Args:
        values: float64[n]; any may be NaN or infinite.
        most: so many at most; at least 5.
    """
    num_rows = len(values)
    if num_rows <= most:
        return np.arange(num_rows)
    num_buckets = (most - 2) // _KEPT
    width = -(-num_rows // num_buckets)
    padded = np.full(num_buckets * width, np.nan)
    padded[:num_rows] = values
    is_finite = np.isfinite(padded)
    is_odd = ~is_finite
    is_odd[num_rows:] = False
    shape = num_buckets, width
    lowest = np.where(is_finite, padded, np.inf).reshape(shape).argmin(axis=1)
    highest = np.where(is_finite, padded, -np.inf).reshape(shape).argmax(axis=1)
    has_finite, has_odd = is_finite.reshape(shape).any(axis=1), is_odd.reshape(shape).any(axis=1)
    starts = np.arange(num_buckets) * width
    found = (
        (starts + lowest)[has_finite],
        (starts + highest)[has_finite],
        (starts + is_odd.reshape(shape).argmax(axis=1))[has_odd],
        np.array([0, num_rows - 1]),
    )
    return np.unique(np.concatenate(found))


def moving_average(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], float]:
    """The exponential moving average at every row, and the weight that it has so far.

    It has no bias towards its start: the weights of the values seen so far add up to one. Values
    that are not finite are passed over; before the first finite one it is NaN.

    Args:
        values: float64[n]

    Returns:
        float64[n], and what the weights of the values add up to before they are made one: who goes
        on with further values needs it.
    """
    is_finite = np.isfinite(values)
    finite = values[is_finite]
    kept = 1 - WEIGHT
    sums = np.empty(len(finite))
    before = 0.0
    for start in range(0, len(finite), _AT_ONCE):
        piece = finite[start : start + _AT_ONCE]
        decay = kept ** np.arange(1, len(piece) + 1)
        sums[start : start + len(piece)] = decay * (before + np.cumsum(WEIGHT * piece / decay))
        before = float(sums[start + len(piece) - 1])
    weights = 1 - kept ** np.arange(1, len(finite) + 1)
    averages = np.concatenate(([np.nan], sums / weights))
    return averages[np.cumsum(is_finite)], float(weights[-1]) if len(finite) else 0.0
