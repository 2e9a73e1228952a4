"""Statements that a small number of step times supports, and nothing more.

Step times are skewed, have outliers, and neighbouring ones resemble each other. Therefore this
module uses medians; an interval of the median from order statistics, which assumes no distribution;
and a number of observations that is corrected for the correlation between neighbours, so that a
slow minute on a busy machine does not count as sixty independent measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Z = 1.96
"""Two-sided 95 % of the normal distribution."""
_APART = 2.0
"""Two samples do not differ by one machine's drift if the gap between their middle halves is
more than this many times the wider of the two (of logarithms): of samples of equal speed 0.5 %
are so far apart, with 20 steps of lag-1 correlation 0.9."""


@dataclass(frozen=True)
class Spread:
    """A sample of times, in seconds."""

    count: int
    median: float
    low: float
    """Lower end of the 95 % interval of the median."""
    high: float
    q1: float
    """A quarter of the sample is below this."""
    q3: float


@dataclass(frozen=True)
class Speedup:
    """How much faster one sample is than another: above 1 is faster."""

    ratio: float
    """Median before divided by median now."""
    low: float
    """Lower end of an interval of the ratio; the two medians' intervals combined, at least 95 %."""
    high: float
    apart: bool = False
    """Whether the samples are much further apart than either is wide, which drift does not
    cause."""

    @property
    def supported(self) -> bool:
        """Whether it excludes "no change", and the change is at least one percent."""
        return (self.low > 1.0 or self.high < 1.0 or self.apart) and abs(self.ratio - 1) >= 0.01


def spread(times: Sequence[float]) -> Spread:
    """Summarise ``times`` (seconds, in the order they were measured; at least one)."""
    ordered = np.sort(np.asarray(times, dtype=np.float64))
    count = len(ordered)
    half_width = _Z / 2 * math.sqrt(count) * math.sqrt(count / _independent(times))
    low = max(math.floor(count / 2 - half_width), 0)
    high = min(math.ceil(count / 2 + half_width), count - 1)
    q1, median, q3 = (float(q) for q in np.quantile(ordered, [0.25, 0.5, 0.75]))
    return Spread(
        count=count,
        median=median,
        low=float(ordered[low]),
        high=float(ordered[high]),
        q1=q1,
        q3=q3,
    )


def speedup(before: Spread, now: Spread) -> Speedup:
    """Speedup from ``before`` to ``now``."""
    return Speedup(
        ratio=before.median / now.median,
        low=before.low / now.high,
        high=before.high / now.low,
        apart=_are_apart(before, now),
    )


def _are_apart(before: Spread, now: Spread) -> bool:
    if min(before.q1, now.q1) <= 0:
        return False
    gap = max(math.log(before.q1 / now.q3), math.log(now.q1 / before.q3))
    widest = max(math.log(before.q3 / before.q1), math.log(now.q3 / now.q1))
    return min(before.count, now.count) >= 20 and gap > _APART * widest


def _independent(times: Sequence[float]) -> float:
    """Effective number of observations under first-order autocorrelation.

    ``n (1 - r) / (1 + r)``, Bartlett 1935, with ``r`` corrected for its bias in short series,
    ``(1 + 4 r) / n``, Marriott and Pope 1954; computed from ranks rather than times, so that one
    outlier does not decide it. Never more than ``n``, never less than 2.
    """
    count = len(times)
    if count < 4:
        return float(count)
    ranks: npt.NDArray[np.float64] = np.argsort(np.argsort(times)).astype(np.float64)
    ranks -= ranks.mean()
    r = float(ranks[1:] @ ranks[:-1] / (ranks @ ranks))
    r = min(max(r + (1 + 4 * r) / count, 0.0), 0.99)
    return max(2.0, count * (1 - r) / (1 + r))
