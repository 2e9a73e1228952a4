"""Thinning of a long curve, keeping the points that a user looks for in it.

Rows are split into buckets, and each keeps its lowest and its highest finite value and the first
value that is not finite: a spike or a NaN of a single step stays visible whatever is left out.
Smoothing must be applied before thinning: an average of extremes is not an average of the curve.
``extensions/views/src/kernel`` does the same with what a page holds (``thin.ts``, ``average.ts``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

WEIGHT = 0.12
"""Weight of the newest value in the moving average."""
_KEPT = 3
"""Maximum number of values kept of each bucket."""
_AT_ONCE = 128
"""Number of values whose average is computed at once; 0.88 to that power is 8e-8, far from the
smallest number there is."""


def kept_rows(values: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.intp]:
    """Return the rows of ``values`` to keep, in ascending order, including the first and the last.

    Args:
        values: float64[n]; any may be NaN or infinite.
        most: maximum number of rows; at least 5.
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
    """Return the exponential moving average at every row, and the total weight so far.

    The average has no bias towards its start: the weights of the values seen so far are normalised
    to add up to one. Values that are not finite are skipped; before the first finite value it is
    NaN.

    Args:
        values: float64[n]

    Returns:
        float64[n], and the sum of the weights of the values before normalisation, which is needed
        to continue with further values.
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
