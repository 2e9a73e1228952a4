"""What interleaved blocks of steps support saying of two arms: *tie*, *unclear*, or different.

In every round each arm is measured once, in random order, so the two times of a round were taken
within seconds of each other: what slows the machine slows both. Their ratio is therefore looked at
round by round (a paired comparison), on a log scale, where twice as fast and twice as slow are
equally far from 1. The middle of the rounds of one pair of processes is that of Wilcoxon's signed
ranks (Hodges and Lehmann), so a round that something else disturbed does not move it.

Processes differ: two that do the very same, whose memory lies elsewhere, were measured to differ by
3 % as often as not and by 8 % at times, however many rounds they do. So rounds of one pair of
processes are one observation, whose spread is not known from them; several pairs show it. Until
then it is taken for `PROCESSES`, with the weight of a few observations (a conjugate prior), so the
interval is Student's t of all of them together. Where others use the machine too, what disturbs a
round disturbs the one after it, and the whole of a pair: pairs are taken to differ by no less than
their rounds do.

What counts as equal is stated beforehand (`EQUAL_WITHIN`, or what was asked for):

- *tie*: the arms are known to differ by less than that. Two one-sided tests at 2.5 % say so
  (Schuirmann 1987), which is the same as their 95 % interval lying within the bound.
- *faster*, *slower*: their 99 % interval leaves out 1, and the middle lies beyond the bound.
- *unclear*: what was measured supports neither.

Arms that are unclear are measured on, and judged again after each pair of processes
(`workbench.compare.measurement`): up to 24 looks, each with a chance of its own to be wrong. So
errors are counted in simulations of all of it, with correlated and heavy-tailed noise
(`tests/unit/compare/test_verdict.py`). 400 to 600 comparisons each, of processes that differ by 1
%, 3 % and 4.4 %: arms that differ by exactly the bound are a tie in 0.2, 4 and 7 % of them, equal
ones different in 0, 0.2 and 2.3 %, 5 % are found in over 97 % and never a tie. On a machine that
others use, whose rounds differ by 12 % or by 25 %, one like the next, equal ones are different in
4.5 and 3.5 % (in 12 and 20 % if their pairs were taken to differ by `PROCESSES` there too).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workbench.records.compare import Verdict

EQUAL_WITHIN = 0.03
"""Arms whose speeds differ by less than this share are as good as equal, however certain it is that
they differ; where nothing else was asked for."""
FEWEST_ROUNDS = 5
"""Fewer support no verdict."""
PROCESSES = 0.04
"""Standard deviation of the log ratio of two processes that do the very same: what is assumed, at
least."""
_WEIGHT = 3
"""Of that assumption, in observations."""
_DIFFERENT = 0.01
"""Two-sided error of the interval that is shown, which *faster* and *slower* go by."""
_TIE = 0.05
"""Two-sided error of the interval that has to lie within the bound for a *tie*."""


@dataclass(frozen=True)
class Paired:
    """How much faster an arm is than another, from the rounds that both were measured in."""

    ratio: float
    """Above 1 is faster; the middle of the rounds' ratios."""
    low: float
    high: float
    """Ends of the 99 % interval."""
    rounds: int
    furthest: float = math.inf
    """The log ratio that is furthest from 0 in the interval that a tie goes by."""
    equal_within: float = EQUAL_WITHIN
    """The share by which arms may differ that are as good as equal."""

    @property
    def verdict(self) -> Verdict:
        """What may be said of it."""
        if self.rounds < FEWEST_ROUNDS:
            return ""
        bound = math.log1p(self.equal_within)
        if self.furthest < bound:
            return "tie"
        if (self.low > 1 or self.high < 1) and abs(math.log(self.ratio)) >= bound:
            return "faster" if self.ratio > 1 else "slower"
        return "unclear"


def paired(
    baseline: Sequence[float],
    arm: Sequence[float],
    processes: Sequence[int] | None = None,
    equal_within: float = EQUAL_WITHIN,
) -> Paired:
    """Compare times (seconds) of two arms, round by round; the shorter series decides.

    Args:
        baseline: one time a round.
        arm: of the same rounds.
        processes: of every round, which pair of processes did it; None: all were of one.
        equal_within: the share by which arms may differ that are as good as equal.
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
    of_rounds = _noise([rounds - at for rounds, at in zip(own, middles, strict=True)]) ** 2
    of_pairs = max(PROCESSES**2, of_rounds)
    assumed = of_pairs + float(np.mean([of_rounds / len(rounds) for rounds in own]))
    centre, error, freedom = _pooled(middles, assumed, _WEIGHT)
    half, near = (error * student(share, freedom) for share in (_DIFFERENT, _TIE))
    low, high = math.exp(centre - half), math.exp(centre + half)
    return Paired(math.exp(centre), low, high, count, abs(centre) + near, equal_within)


def _pooled(middles: NDArray[np.float64], assumed: float, weight: int) -> tuple[float, float, int]:
    """Mean, its standard error and degrees of freedom; ``assumed`` is a variance known before.

    With a weight of 0 it is Student's: the standard deviation over the root of the number.
    """
    count, centre = len(middles), float(middles.mean())
    freedom = weight + count - 1
    found = float(((middles - centre) ** 2).sum())
    return centre, math.sqrt((weight * assumed + found) / freedom / count), freedom


@lru_cache(maxsize=256)
def student(error: float, freedom: int) -> float:
    """How far Student's t lies beyond 0, to either side together, with probability ``error``."""
    low, high = 0.0, 1e6
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _beyond(middle, freedom) < error else (middle, high)
    return high


def _beyond(t: float, freedom: int) -> float:
    """Probability of a value beyond ``t`` to either side (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for at in range(odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (at + 1) / (at + 2)
    within = math.sin(angle) * total
    return 1 - (2 / math.pi * (angle + within) if odd else within)


def _middle(rounds: NDArray[np.float64]) -> float:
    """The median of the means of all pairs of values."""
    at, other = np.triu_indices(len(rounds))
    return float(np.median((rounds[at] + rounds[other]) / 2))


def round_noise(own: Sequence[NDArray[np.float64]]) -> float:
    """Standard deviation of rounds around the middle of theirs, by the quartiles of all of them.

    Args:
        own: log ratios of the rounds of each pair of processes.
    """
    return _noise([rounds - _middle(rounds) for rounds in own])


def _noise(own: Sequence[NDArray[np.float64]]) -> float:
    around = np.concatenate(own)
    if len(around) < FEWEST_ROUNDS:
        return float(around.std(ddof=1)) if len(around) > 1 else 0.0
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
