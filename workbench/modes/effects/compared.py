"""What a comparison in turns (`workbench.compare`) has found of two sets of modes, for badges.

Steps of a run are timed one set after another, as the user switches; a comparison times them in
turns, so it takes precedence.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.modes.effects.statistics import Speedup, Spread
from workbench.records.compare import Verdict


@dataclass(frozen=True, kw_only=True)
class Judged(Speedup):
    """A speedup with the verdict of the comparison that it comes from."""

    verdict: Verdict
    """Verdict of the comparison: ``faster``, ``slower``, ``tie`` or ``unclear``."""

    @property
    def supported(self) -> bool:
        """Whether the comparison found it faster or slower."""
        return self.verdict in ("faster", "slower")


@dataclass(frozen=True)
class Compared:
    """Comparison of one set of modes with another."""

    change: Judged
    before: Spread
    """Seconds per step, over the rounds."""
    now: Spread
    first_s: float
    """Seconds of the first step, including what it compiled from an empty cache."""
