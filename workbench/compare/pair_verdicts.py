"""Verdicts of a comparison on every two of its variants, for the badges of the experiment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import TYPE_CHECKING

from workbench.compare.measurement import against
from workbench.compare.verdict import FEWEST_ROUNDS
from workbench.modes.effects.compared import Compared, Judged
from workbench.modes.effects.statistics import Spread, spread

if TYPE_CHECKING:
    from workbench.compare.measurement import Measured


def pair_verdicts(
    variants: Sequence[Measured], equal_within: float
) -> dict[tuple[str, str], Compared]:
    """Return verdicts by (modes before, modes now), without variants that failed or had few rounds.

    Args:
        variants: variants of one model.
        equal_within: relative difference of two speeds up to which they are a tie.
    """
    found: dict[tuple[str, str], Compared] = {}
    measured: dict[str, Measured] = {}
    for variant in variants:
        if variant.blocks and not variant.problem:
            measured.setdefault(
                variant.modes, variant
            )  # of equal ones the first, like the baseline
    for before, now in permutations(measured.values(), 2):
        change = against(now, before, equal_within)
        if change.rounds < FEWEST_ROUNDS:
            continue
        found[before.modes, now.modes] = Compared(
            Judged(change.ratio, change.low, change.high, verdict=change.verdict),
            _spread(before),
            _spread(now),
            now.first_s,
        )
    return found


def _spread(variant: Measured) -> Spread:
    return spread([block.seconds for block in variant.blocks])
