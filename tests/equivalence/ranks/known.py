"""What is known to be wrong today. A test sees each to be wrong, and fails once it is right.

Whoever mends one takes its entry away: from then on its part is in the rows and in what is drawn
like any other. Nothing else in these tests makes an exception for a fault.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from tests.equivalence.ranks.recipes import SWITCH, RankRecipe, layout_of

HERE_AND_THERE = (
    (1, SWITCH + "ddp:2"),
    (3, SWITCH + "fsdp:2"),
    (5, SWITCH),
)
"""Away, elsewhere, home; of recipes of six steps, whose epochs end with a smaller batch."""
PLAIN = RankRecipe(samples=21, size=8, validates=True, actions=HERE_AND_THERE)


@dataclass(frozen=True)
class Known:
    """A fault of recipes that have all of these parts.

    Args:
        parts: of a recipe: ``{"model": "teacher"}``.
        says: what the difference says, as a regular expression.
        layouts: the kinds of layout under which it shows.
    """

    parts: dict[str, Any]
    says: str
    layouts: tuple[str, ...] = ("ddp", "fsdp")

    @property
    def recipe(self) -> RankRecipe:
        """One in which it shows."""
        switches = tuple((step, SWITCH + f"{kind}:2") for step, kind in enumerate(self.layouts, 1))
        given = {"actions": (*switches, (1 + len(switches), SWITCH)), **self.parts}
        return dataclasses.replace(PLAIN, **given)

    def fits(self, recipe: RankRecipe) -> bool:
        """Whether it may show in ``recipe``."""
        kinds = {layout_of(modes).partition(":")[0] for _, modes in recipe.switches}
        parts = {name: value for name, value in self.parts.items() if name != "actions"}
        return bool(kinds & set(self.layouts)) and all(
            getattr(recipe, name) == value for name, value in parts.items()
        )


_NUMBERS = r"differs|the loss of step|the gradient norm|a loss of|an accuracy of"

KNOWN: dict[str, Known] = {}


def known(recipe: RankRecipe, fault: str) -> str:
    """The name of the fault, where it is one of these; ``""`` where it is not."""
    for name, one in KNOWN.items():
        if one.fits(recipe) and re.search(one.says, fault):
            return name
    return ""
