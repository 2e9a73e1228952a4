"""What interleaved blocks of steps support saying of two arms.

In every round each arm is measured once, in random order, so the two times of a round were taken
within seconds of each other: what slows the machine slows both. Their ratio is therefore looked at
round by round (a paired comparison), on a log scale, where twice as fast and twice as slow are
equally far from 1. An interval that leaves out 1 by chance in one of a hundred cases, and a change
of at least `LEAST`, are what a verdict takes; anything else is a tie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from workbench.records.compare import Verdict

LEAST = 0.02
"""A smaller change is a tie, however certain: nobody chooses a mode for it."""
FEWEST_ROUNDS = 5
"""Fewer support no verdict."""
_T_99 = (
    63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17,
    3.11, 3.05, 3.01, 2.98, 2.95, 2.92, 2.90, 2.88, 2.86, 2.85,
)  # fmt: skip
"""Two-sided 99 % of Student's t, for 1, 2, ... degrees of freedom; 2.85 to 2.58 for more."""


@dataclass(frozen=True)
class Paired:
    """How much faster an arm is than another, from the rounds that both were measured in."""

    ratio: float
    """Above 1 is faster; the geometric mean over rounds."""
    low: float
    high: float
    """Ends of the 99 % interval."""
    rounds: int

    @property
    def verdict(self) -> Verdict:
        """What may be said of it."""
        if self.rounds < FEWEST_ROUNDS:
            return ""
        if (self.low > 1 or self.high < 1) and abs(math.log(self.ratio)) >= math.log1p(LEAST):
            return "faster" if self.ratio > 1 else "slower"
        return "tie"


def paired(baseline: Sequence[float], arm: Sequence[float]) -> Paired:
    """Compare times (seconds) of two arms, round by round; the shorter series decides."""
    count = min(len(baseline), len(arm))
    if not count:
        return Paired(math.nan, math.nan, math.nan, 0)
    logs = np.log(np.asarray(baseline[:count])) - np.log(np.asarray(arm[:count]))
    mean = float(logs.mean())
    if count == 1:
        return Paired(math.exp(mean), math.nan, math.nan, 1)
    error = float(logs.std(ddof=1)) / math.sqrt(count) * _T_99[min(count - 1, len(_T_99)) - 1]
    return Paired(math.exp(mean), math.exp(mean - error), math.exp(mean + error), count)


def break_even(first: float, step: float, base_first: float, base_step: float) -> float:
    """Steps after which an arm has done as many as its baseline in the same time.

    0 where it is ahead from the first step on, -1 where it never catches up.
    """
    behind, saving = first - base_first, base_step - step
    if behind <= 0:
        return 0.0 if saving >= 0 else -1.0
    return behind / saving if saving > 0 else -1.0
