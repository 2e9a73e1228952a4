"""Conclusions from interleaved blocks of steps of two variants: *tie*, *unclear*, or different.

In every round each variant is measured once, in random order, so the two times of a round were
taken within seconds of each other: whatever slows the machine slows both. Their ratio is therefore
considered round by round (a paired comparison), on a log scale, where twice as fast and twice as
slow are equally far from 1. The centre of the rounds of one pair of processes is estimated from
Wilcoxon's signed ranks (Hodges and Lehmann), so a single disturbed round does not shift it.

Processes differ: two that do exactly the same, but whose memory is at other addresses, were
measured to differ by 3 % as often as not and by 8 % at times, however many rounds they do. So the
rounds of one pair of processes are a single observation, whose spread cannot be determined from
them; several pairs show it. Until then it is assumed to be `PROCESSES`, with the weight of a few
observations (a conjugate prior), so the interval is Student's t of all of them together. Where
others use the machine too, a disturbance of one round also affects the next round, and the whole
pair: pairs are assumed to differ by at least as much as their rounds do.

What counts as equal is stated in advance (`EQUAL_WITHIN`, or the value that was requested):

- *tie*: the variants are known to differ by less than that. This is the result of two one-sided
  tests at 2.5 % (Schuirmann 1987), which is the same as their 95 % interval being within the bound.
- *faster*, *slower*: their 99 % interval excludes 1, and the centre is outside the bound.
- *unclear*: the measurements support neither.

Variants that are unclear are measured further, and judged again after each pair of processes
(`workbench.compare.measurement`): up to 24 looks, each with its own probability of error. So error
rates are counted in simulations of the whole procedure, with correlated and heavy-tailed noise
(`tests/unit/compare/test_verdict.py`). In 400 to 600 comparisons each, of processes that differ by
1 %, 3 % and 4.4 %: variants that differ by exactly the bound are called a tie in 0.2, 4 and 7 % of
them, equal ones different in 0, 0.2 and 2.3 %, and a difference of 5 % is found in over 97 % and
never called a tie. On a machine that others use, whose rounds differ by 12 % or by 25 % and are
correlated, equal variants are called different in 4.5 and 3.5 % (in 12 and 20 % if their pairs were
assumed to differ by `PROCESSES` there too).
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
"""Variants whose speeds differ by less than this share are considered equal, however certain the
difference is; the default if no other bound is given."""
FEWEST_ROUNDS = 5
"""Minimum number of rounds for a verdict."""
PROCESSES = 0.04
"""Standard deviation of the log ratio of two processes that do exactly the same: the minimum that
is assumed."""
_WEIGHT = 3
"""Weight of that assumption, in observations."""
_DIFFERENT = 0.01
"""Two-sided error of the interval that is shown, on which *faster* and *slower* are based."""
_TIE = 0.05
"""Two-sided error of the interval that has to be within the bound for a *tie*."""


@dataclass(frozen=True)
class Paired:
    """How much faster one variant is than another, from the rounds in which both were measured."""

    ratio: float
    """Speed ratio, above 1 if faster; the centre of the rounds' ratios."""
    low: float
    high: float
    """Ends of the 99 % interval."""
    rounds: int
    furthest: float = math.inf
    """The log ratio furthest from 0 in the interval on which a tie is based."""
    equal_within: float = EQUAL_WITHIN
    """Relative difference up to which variants are considered equal."""

    @property
    def verdict(self) -> Verdict:
        """The verdict that the measurements support."""
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
    variant: Sequence[float],
    processes: Sequence[int] | None = None,
    equal_within: float = EQUAL_WITHIN,
) -> Paired:
    """Compare times (seconds) of two variants, round by round; the shorter series decides.

    Args:
        baseline: one time per round.
        variant: times of the same rounds.
        processes: for every round, the index of the pair of processes that did it; None if all
            rounds were done by one pair.
        equal_within: relative difference up to which variants are considered equal.
    """
    count = min(len(baseline), len(variant))
    if not count:
        return Paired(math.nan, math.nan, math.nan, 0)
    logs = np.log(np.asarray(baseline[:count])) - np.log(np.asarray(variant[:count]))
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
    """Return mean, its standard error and degrees of freedom; ``assumed`` is a prior variance.

    With a weight of 0 this is Student's: the standard deviation divided by the root of the number.
    """
    count, centre = len(middles), float(middles.mean())
    freedom = weight + count - 1
    found = float(((middles - centre) ** 2).sum())
    return centre, math.sqrt((weight * assumed + found) / freedom / count), freedom


@lru_cache(maxsize=256)
def student(error: float, freedom: int) -> float:
    """Return the two-sided critical value of Student's t for the probability ``error``."""
    low, high = 0.0, 1e6
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _beyond(middle, freedom) < error else (middle, high)
    return high


def _beyond(t: float, freedom: int) -> float:
    """Return the two-sided probability beyond ``t`` (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for at in range(odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (at + 1) / (at + 2)
    within = math.sin(angle) * total
    return 1 - (2 / math.pi * (angle + within) if odd else within)


def _middle(rounds: NDArray[np.float64]) -> float:
    """Return the median of the means of all pairs of values."""
    at, other = _pairs_of(len(rounds))
    return float(np.median((rounds[at] + rounds[other]) / 2))


@lru_cache(maxsize=8)
def _pairs_of(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of all pairs of ``count`` values, each value with itself as well."""
    return np.triu_indices(count)


def round_noise(own: Sequence[NDArray[np.float64]]) -> float:
    """Return the standard deviation of rounds around their own centre, from the quartiles of all.

    Args:
        own: log ratios of the rounds, one array for each pair of processes.
    """
    return _noise([rounds - _middle(rounds) for rounds in own])


def _noise(own: Sequence[NDArray[np.float64]]) -> float:
    around = np.concatenate(own)
    if len(around) < FEWEST_ROUNDS:
        return float(around.std(ddof=1)) if len(around) > 1 else 0.0
    low, high = np.quantile(around, (0.25, 0.75))
    return float(high - low) / 1.349  # for a normal distribution


def break_even(first: float, step: float, base_first: float, base_step: float) -> float:
    """Return the steps after which a variant has done as many as its baseline in the same time.

    The result is 0 if it is ahead from the first step on, and -1 if it never catches up.
    """
    behind, saving = first - base_first, base_step - step
    if behind <= 0:
        return 0.0 if saving >= 0 else -1.0
    return 1 + behind / saving if saving > 0 else -1.0
