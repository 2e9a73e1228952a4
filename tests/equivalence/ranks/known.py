"""What is known to be wrong today. A test sees each to be wrong, and fails once it is right.

Whoever mends one takes its entry away: from then on its part is in the rows and in what is drawn
like any other. Nothing else in these tests makes an exception for a fault.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
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
        beside: a mode that is on at the same time.
        shown: what else a recipe has in which it shows.
    """

    parts: dict[str, Any]
    says: str
    layouts: tuple[str, ...] = ("ddp", "fsdp")
    beside: str = ""
    shown: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def recipe(self) -> RankRecipe:
        """One in which it shows."""
        extra = f"{self.beside}+" if self.beside else ""
        switches = tuple(
            (step, SWITCH + f"{extra}{kind}:2") for step, kind in enumerate(self.layouts, 1)
        )
        given = {"actions": (*switches, (1 + len(switches), SWITCH)), **self.parts, **self.shown}
        return dataclasses.replace(PLAIN, **given)

    def fits(self, recipe: RankRecipe) -> bool:
        """Whether it may show in ``recipe``."""
        kinds = {
            layout_of(modes).partition(":")[0]
            for _, modes in recipe.switches
            if self.beside in ("", *modes.split("+"))
        }
        return bool(kinds & set(self.layouts)) and all(
            getattr(recipe, name) == value for name, value in self.parts.items()
        )


_NUMBERS = (
    r"differs after|^the (loss|rate) of step|^the gradient norm|has a loss of|has an accuracy of"
)
_COUNTS = r"\b(calls|heard|kept) is |^(calls|updates) of "

_DDP = ("ddp",)

KNOWN: dict[str, Known] = {
    "a count beside buffers stays on the ranks": Known(
        {"model": "state of its own"}, f"{_COUNTS}|{_NUMBERS}"
    ),
    # each rank rounds the sum over its own rows to float16, and ranks add up in float32
    "fp16 overflows later": Known(
        {},
        f"'s lr is|{_NUMBERS}",
        _DDP,
        beside="fp16",
        shown={
            "loss": "summed",
            "optimizer": "sgd, maximize",
            "actions": ((0, SWITCH + "fp16+ddp:2"), (2, SWITCH + "fp16"), (5, SWITCH)),
        },
    ),
}


def known(recipe: RankRecipe, fault: str) -> str:
    """The name of the fault, where it is one of these; ``""`` where it is not."""
    for name, one in KNOWN.items():
        if one.fits(recipe) and re.search(one.says, fault):
            return name
    return ""
