"""What may be refused before a process is started, or be said of a run in a note.

Whatever else ranks do otherwise than a plain loop is a fault. A sentence has to name what and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.equivalence.ranks.models import MODELS
from tests.equivalence.ranks.recipes import SHARED, RankRecipe, layout_of

_LONGEST = 420


@dataclass(frozen=True)
class Refusal:
    """Of which recipes a layout may be refused, and with which words."""

    of: Callable[[RankRecipe, str], bool]
    """Of a recipe and a layout's kind, ``ddp`` or ``fsdp``."""
    names: str
    """What the sentence says, as a regular expression: what is refused, and why or what to do."""


REFUSALS: dict[str, Refusal] = {
    "batches of the loader's own": Refusal(
        lambda recipe, kind: recipe.source not in SHARED, r"batches.*(arrays|Dataset)"
    ),
    "validation in the loader's own order": Refusal(
        lambda recipe, kind: recipe.validates and recipe.validation != "arrays",
        r"val|batches.*(arrays|Dataset)",
    ),
    "parameters of the loss": Refusal(
        lambda recipe, kind: recipe.loss == "with parameters", r"parameter.*part of the model"
    ),
    "sparse gradients": Refusal(
        lambda recipe, kind: MODELS[recipe.model].is_sparse and kind == "fsdp", r"sparse.*ddp"
    ),
    "Adafactor": Refusal(
        lambda recipe, kind: recipe.optimizer == "adafactor" and kind == "fsdp",
        r"Adafactor.*(ddp|shard)",
    ),
    "Muon": Refusal(
        lambda recipe, kind: recipe.optimizer == "muon" and kind == "fsdp", r"Muon.*(ddp|shard)"
    ),
    "an optimizer that reads norms": Refusal(
        lambda recipe, kind: recipe.optimizer == "norms read" and kind == "fsdp",
        r"Lars.*(ddp|shard)",
    ),
    "channels last": Refusal(
        lambda recipe, kind: recipe.model == "channels last" and kind == "fsdp",
        r"(channels.last|contiguous).*(ddp|fsdp)",
    ),
    "two float types": Refusal(
        lambda recipe, kind: recipe.model == "two float types" and kind == "fsdp",
        r"float(32|64).*(ddp|fsdp)",
    ),
    "a block's method": Refusal(
        lambda recipe, kind: recipe.model == "a method past forward" and kind == "fsdp",
        r"fsdp|forward",
    ),
    "a reentrant checkpoint": Refusal(
        lambda recipe, kind: recipe.model == "reentrant checkpoint", r"reentrant"
    ),
    "synchronized batch norm": Refusal(
        lambda recipe, kind: recipe.model == "synchronized batch norm", r"SyncBatchNorm"
    ),
    "a teacher that forward writes": Refusal(
        lambda recipe, kind: recipe.model == "teacher" and kind == "fsdp", r"writ.*(ddp|fsdp)"
    ),
    "tied by data": Refusal(
        lambda recipe, kind: recipe.model == "tied by data", r"(share|one memory|same memory|tied)"
    ),
    "one row for batch norm": Refusal(
        lambda recipe, kind: "norm" in recipe.model and recipe.size < 4, r"batch norm|row"
    ),
    "a loss that averages by itself": Refusal(
        lambda recipe, kind: recipe.loss in ("of one's own", "partial", "soft labels, weights"),
        r"loss|mean",
    ),
    "a schedule without a state": Refusal(
        lambda recipe, kind: recipe.schedule == "of one's own", r"(Falling|schedule).*state"
    ),
    "something attached": Refusal(lambda recipe, kind: bool(recipe.attached), r"hook"),
}
"""Each is right where it is made to work, too."""


def unclear(recipe: RankRecipe, modes: str, sentence: str) -> str:
    """What is wrong with a refusal; ``""`` where it is one sentence that names what and why."""
    kind = layout_of(modes)[:4].rstrip(":")
    if "\n" in sentence.strip() or len(sentence) > _LONGEST:
        return f"{modes} is refused with more than a sentence: {sentence}"
    expected = [one for one in REFUSALS.values() if one.of(recipe, kind)]
    if not expected:
        return f"{modes} is refused, which works: {sentence}"
    if not any(re.search(one.names, sentence, re.IGNORECASE) for one in expected):
        return f"{modes} is refused without naming what and why: {sentence}"
    return ""


REPORTED: dict[str, Refusal] = {
    "what a hook on a module counts": Refusal(
        lambda recipe, kind: recipe.attached in ("forward hook", "backward hook"), r"hook.*\brank"
    ),
    "what a module counts": Refusal(
        lambda recipe, kind: MODELS[recipe.model].keeps, r"(attribute|counts?|keeps).*\brank"
    ),
    "what an optimizer keeps": Refusal(
        lambda recipe, kind: recipe.optimizer in ("attributes of its own", "marks on parameters"),
        r"(Counting|Marked|attribute).*\brank",
    ),
    "a loss that averages by itself": Refusal(
        lambda recipe, kind: recipe.loss == "of one's own", r"(loss|mean).*\brank"
    ),
    "a schedule without a state": Refusal(
        lambda recipe, kind: recipe.schedule == "of one's own", r"(Falling|schedule).*\brank"
    ),
}
"""What may differ if a note says so, from the start of the ranks on."""


def reported(recipe: RankRecipe, notes: list[str]) -> str:
    """The note that says what may differ in ``recipe``; ``""`` where there is none."""
    for one in REPORTED.values():
        if not one.of(recipe, ""):
            continue
        for note in notes:
            if re.search(one.names, note, re.IGNORECASE):
                return note
    return ""
