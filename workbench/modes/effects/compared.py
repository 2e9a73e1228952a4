"""What a comparison in turns (`workbench.compare`) has found of two sets of modes, for badges.

Steps of a run are timed one set after another, as a person switches; a comparison times them in
turns, so it is believed first.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.modes.effects.statistics import Speedup, Spread
from workbench.records.compare import Verdict


@dataclass(frozen=True, kw_only=True)
class Judged(Speedup):
    """A speedup with the judgement of the comparison that it is from."""

    verdict: Verdict
    """Its word for it: ``faster``, ``slower``, ``tie`` or ``unclear``."""

    @property
    def supported(self) -> bool:
        """Whether that called it faster or slower."""
        return self.verdict in ("faster", "slower")


@dataclass(frozen=True)
class Compared:
    """One set of modes after another."""

    change: Judged
    before: Spread
    """Seconds a step, of rounds."""
    now: Spread
    first_s: float
    """Seconds of the first step, with what it compiled from an empty cache."""
