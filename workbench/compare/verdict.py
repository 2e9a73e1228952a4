"""What interleaved blocks of steps support saying of two arms.

In every round each arm is measured once, in random order, so the two times of a round were taken
within seconds of each other: what slows the machine slows both. Their ratio is therefore looked at
round by round (a paired comparison), on a log scale, where twice as fast and twice as slow are
equally far from 1. The middle of the rounds of one pair of processes is that of Wilcoxon's signed
ranks (Hodges and Lehmann), so a round that something else disturbed does not move it.

Processes differ: two that do the very same, whose memory lies elsewhere, were measured to differ by
3 % as often as not and by 8 % at times, however many rounds they do. So rounds of one pair of
processes are one observation, whose spread is not known from them; several pairs show it. Until
then it is taken for `PROCESSES`, with the weight of a few observations (a conjugate prior), so the
interval is Student's t of all of them together.

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
they differ."""
FEWEST_ROUNDS = 5
"""Fewer support no verdict."""
PROCESSES = 0.03
"""Standard deviation of the log ratio of two processes that do the very same: what is assumed."""
_WEIGHT = 4
"""Of that assumption, in observations."""
_T = {
    0.01: (4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947),
    0.10: (2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753),
}
"""Student's t, two-sided, for `_WEIGHT` degrees of freedom and more, one by one."""


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


def paired(
    baseline: Sequence[float], arm: Sequence[float], processes: Sequence[int] | None = None
) -> Paired:
    """Compare times (seconds) of two arms, round by round; the shorter series decides.

    Args:
        baseline: one time a round.
        arm: of the same rounds.
        processes: of every round, which pair of processes did it; None: all were of one.
    """
    count = min(len(baseline), len(arm))
    if not count:
        return Paired(math.nan, math.nan, math.nan, 0)
    logs = np.log(np.asarray(baseline[:count])) - np.log(np.asarray(arm[:count]))
    if count == 1:
        return Paired(math.exp(logs[0]), math.nan, math.nan, 1)
    pairs = np.zeros(count) if processes is None else np.asarray(processes[:count])
    own = [logs[pairs == number] for number in np.unique(pairs)]
    middles = np.array([_middle(rounds) for rounds in own])
    centre = float(middles.mean())
    freedom = _WEIGHT + len(own) - 1
    of_rounds = _spread(own, middles) ** 2
    assumed = PROCESSES**2 + float(np.mean([of_rounds / len(rounds) for rounds in own]))
    found = float(((middles - centre) ** 2).sum())
    spread = math.sqrt((_WEIGHT * assumed + found) / freedom / len(own))
    half, tie = (spread * _T[error][min(freedom - _WEIGHT, len(_T[error]) - 1)] for error in _T)
    low, high = math.exp(centre - half), math.exp(centre + half)
    is_same = abs(centre) + tie <= math.log1p(SAME)
    return Paired(math.exp(centre), low, high, count, is_same)


def _middle(rounds: NDArray[np.float64]) -> float:
    """The median of the means of all pairs of values."""
    at, other = np.triu_indices(len(rounds))
    return float(np.median((rounds[at] + rounds[other]) / 2))


def _spread(own: Sequence[NDArray[np.float64]], middles: NDArray[np.float64]) -> float:
    """Standard deviation of rounds around the middle of theirs, by the quartiles of all of them."""
    around = np.concatenate([rounds - at for rounds, at in zip(own, middles, strict=True)])
    if len(around) < FEWEST_ROUNDS:
        return float(around.std(ddof=1))
    low, high = np.quantile(around, (0.25, 0.75))
    return float(high - low) / 1.349  # of a normal distribution


def break_even(first: float, step: float, base_first: float, base_step: float) -> float:
    """Steps after which an arm has done as many as its baseline in the same time.

    0 where it is ahead from the first step on, -1 where it never catches up.
    """
    behind, saving = first - base_first, base_step - step
    if behind <= 0:
        return 0.0 if saving >= 0 else -1.0
    return 1 + behind / saving if saving > 0 else -1.0
