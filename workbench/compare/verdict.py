"""What interleaved blocks of steps support saying of two arms.

In every round each arm is measured once, in random order, so the two times of a round were taken
within seconds of each other: what slows the machine slows both. Their ratio is therefore looked at
round by round (a paired comparison), on a log scale, where twice as fast and twice as slow are
equally far from 1. Centre and interval are those of Wilcoxon's signed ranks (Hodges and Lehmann),
so a round that something else disturbed moves neither.

*Faster* and *slower* take a 99 % interval that leaves out 1 and a change of at least `SAME`. *Tie*
is a statement too: two one-sided tests at 5 % say that the arms differ by less than `SAME` (the
90 % interval lies within). What supports neither is *unclear*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workbench.records.compare import Verdict

SAME = 0.05
"""Arms whose speeds differ by less than this share are as good as equal, however certain it is that
they differ: two processes that do the very same, in memory that lies elsewhere, differ by 3 %."""
FEWEST_ROUNDS = 5
"""Fewer support no verdict."""
_ERROR, _TIE_ERROR = 0.01, 0.1
"""How often the interval may leave out the truth: the one that is shown, and that of a tie."""
_FEWEST_RANKED = 8
"""The signed ranks of fewer rounds have no 99 % interval; Student's t has, a wider one."""
_T = {
    _ERROR: (63.66, 9.92, 5.84, 4.60, 4.03, 3.71),
    _TIE_ERROR: (6.31, 2.92, 2.35, 2.13, 2.02, 1.94),
}
"""Student's t, two-sided, for 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class Paired:
    """How much faster an arm is than another, from the rounds that both were measured in."""

    ratio: float
    """Above 1 is faster; the middle of the rounds' ratios."""
    low: float
    high: float
    """Ends of the 99 % interval."""
    rounds: int
    is_same: bool = False
    """Whether they are known to differ by less than `SAME`."""

    @property
    def verdict(self) -> Verdict:
        """What may be said of it."""
        if self.rounds < FEWEST_ROUNDS:
            return ""
        if (self.low > 1 or self.high < 1) and abs(math.log(self.ratio)) >= math.log1p(SAME):
            return "faster" if self.ratio > 1 else "slower"
        return "tie" if self.is_same else "unclear"


def paired(baseline: Sequence[float], arm: Sequence[float]) -> Paired:
    """Compare times (seconds) of two arms, round by round; the shorter series decides."""
    count = min(len(baseline), len(arm))
    if not count:
        return Paired(math.nan, math.nan, math.nan, 0)
    logs = np.log(np.asarray(baseline[:count])) - np.log(np.asarray(arm[:count]))
    if count == 1:
        return Paired(math.exp(logs[0]), math.nan, math.nan, 1)
    interval = _ranked if count >= _FEWEST_RANKED else _student
    centre, low, high = interval(logs, _ERROR)
    _, *ends = interval(logs, _TIE_ERROR)
    is_same = max(map(abs, ends)) <= math.log1p(SAME)
    return Paired(math.exp(centre), math.exp(low), math.exp(high), count, is_same)


def _ranked(values: NDArray[np.float64], error: float) -> tuple[float, float, float]:
    """Centre and interval: of the means of all pairs of values, the middle and two further out."""
    at, other = np.triu_indices(len(values))
    means = np.sort((values[at] + values[other]) / 2)
    outer = _outer_rank(len(values), error)
    return float(np.median(means)), float(means[outer]), float(means[-1 - outer])


def _outer_rank(count: int, error: float) -> int:
    """How many of the sorted means lie outside of each end of the interval."""
    chances = np.ones(1)  # of every sum of the ranks 1 to count that have a positive sign
    for rank in range(1, count + 1):
        longer = np.zeros(len(chances) + rank)
        longer[: len(chances)] += chances / 2
        longer[rank:] += chances / 2
        chances = longer
    return max(0, int(np.searchsorted(np.cumsum(chances), error / 2, side="right")) - 1)


def _student(values: NDArray[np.float64], error: float) -> tuple[float, float, float]:
    mean = float(values.mean())
    half = float(values.std(ddof=1)) / math.sqrt(len(values)) * _T[error][len(values) - 2]
    return mean, mean - half, mean + half


def break_even(first: float, step: float, base_first: float, base_step: float) -> float:
    """Steps after which an arm has done as many as its baseline in the same time.

    0 where it is ahead from the first step on, -1 where it never catches up.
    """
    behind, saving = first - base_first, base_step - step
    if behind <= 0:
        return 0.0 if saving >= 0 else -1.0
    return 1 + behind / saving if saving > 0 else -1.0
