"""What may be refused before a process is started.

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
