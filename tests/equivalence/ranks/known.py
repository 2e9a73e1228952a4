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
_FSDP = ("fsdp",)
_DDP = ("ddp",)


def _raises(words: str) -> str:
    return rf"(?s)^it raises \w+Error: .*{words}"


KNOWN: dict[str, Known] = {
    # what people attach, and what a module or an optimizer keeps besides tensors
    "a count in a module stays on the ranks": Known({"model": "anneals"}, f"{_COUNTS}|{_NUMBERS}"),
    "a count beside buffers stays on the ranks": Known(
        {"model": "state of its own"}, f"{_COUNTS}|{_NUMBERS}"
    ),
    "what a hook counts on its module stays on the ranks": Known(
        {"attached": "forward hook that counts on the module"}, f"{_COUNTS}|{_NUMBERS}"
    ),
    "what a forward hook counts stays on the ranks": Known(
        {"attached": "forward hook"}, f"{_COUNTS}|{_NUMBERS}"
    ),
    "what a backward hook counts stays on the ranks": Known(
        {"attached": "backward hook"}, f"{_COUNTS}|{_NUMBERS}"
    ),
    "a hook of a parameter is lost: a mask": Known({"attached": "gradient mask"}, _NUMBERS),
    "a hook of a parameter is lost: a clamp": Known({"attached": "gradient clamp"}, _NUMBERS),
    "a hook of an accumulated gradient is lost": Known(
        {"attached": "accumulated gradient halved"}, _NUMBERS
    ),
    "an optimizer's hook is lost: an average": Known(
        {"attached": "average in an optimizer's hook"}, _COUNTS
    ),
    "an optimizer's hook is lost: before the update": Known(
        {"attached": "gradients halved in an optimizer's hook"}, _NUMBERS
    ),
    "an optimizer's own attributes are lost": Known(
        {"optimizer": "attributes of its own"}, _raises("has no attribute")
    ),
    "attributes of parameters are lost": Known({"optimizer": "marks on parameters"}, _NUMBERS),
    "a schedule without a state comes home where it left": Known(
        {"schedule": "of one's own"}, f"'s lr is|{_NUMBERS}"
    ),
    "parameters of one memory come apart": Known({"model": "tied by data"}, _NUMBERS),
    # the weighing of losses
    "a loss that averages by its own weights": Known({"loss": "of one's own"}, _NUMBERS),
    # gradients of a rank are as many times larger as there are ranks, until they are averaged
    "fp16 overflows at half the scale": Known(
        {},
        f"'s lr is|{_NUMBERS}",
        beside="fp16",
        shown={"loss": "summed", "schedule": "cyclic"},
    ),
    # what sharded parameters cannot take
    "a parameter that forward writes": Known({"model": "teacher"}, _NUMBERS, _FSDP),
    "an optimizer reads the norm of a shard": Known({"optimizer": "norms read"}, _NUMBERS, _FSDP),
    "Muon orthogonalizes a shard": Known({"optimizer": "muon"}, _NUMBERS, _FSDP),
    "Adafactor's moments": Known(
        {"optimizer": "adafactor"}, _raises(r"(Adafactor keeps|aten\.pow_)"), _FSDP
    ),
    "Rprop writes by a mask": Known({"optimizer": "rprop"}, _raises("index_put_"), _FSDP),
    "a fused SGD": Known({"optimizer": "sgd, fused"}, _raises("_fused_sgd_"), _FSDP),
    "channels-last weights": Known({"model": "channels last"}, _raises("non-contiguous"), _FSDP),
    "two float types in a block": Known(
        {"model": "two float types"}, _raises("uniform original parameter dtype"), _FSDP
    ),
    "complex parameters beside real ones": Known(
        {"model": "complex"}, _raises("uniform original parameter dtype"), _FSDP
    ),
    "a block's method called directly": Known(
        {"model": "a method past forward"}, _raises("mixed torch.Tensor and DTensor"), _FSDP
    ),
    # what DDP cannot take
    "a reentrant checkpoint": Known(
        {"model": "reentrant checkpoint"}, _raises("mark a variable ready only once"), _DDP
    ),
    "synchronized batch norm on a CPU": Known(
        {"model": "synchronized batch norm"}, _raises("SyncBatchNorm")
    ),
}


def known(recipe: RankRecipe, fault: str) -> str:
    """The name of the fault, where it is one of these; ``""`` where it is not."""
    for name, one in KNOWN.items():
        if one.fits(recipe) and re.search(one.says, fault):
            return name
    return ""
