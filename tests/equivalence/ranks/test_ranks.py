"""A run that goes to ranks and comes home, whatever the recipe: a plain loop's numbers.

Real worker processes speak real gloo; `tests.fork_server` says how they start so
fast, and two recipes start as a person's do. ``make test-all`` takes every part of a recipe once
and draws a few, ``make fuzz`` draws 500.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.equivalence.check import ImpossibleError
from tests.equivalence.losses import LOSSES
from tests.equivalence.optimizers import OVER
from tests.equivalence.ranks.attached import ATTACHED
from tests.equivalence.ranks.check import Outcome, check, ordinary_ranks
from tests.equivalence.ranks.models import MODELS
from tests.equivalence.ranks.optimizers import ALL_DENSE, ALL_SCHEDULES
from tests.equivalence.ranks.recipes import (
    ACTIONS,
    MORE_LAYOUTS,
    PLAIN,
    SHARED,
    SWITCH,
    RankRecipe,
    drawn,
    is_possible,
)
from tests.equivalence.ranks.survey import shrunk
from tests.fork_server import ForkServer

pytestmark = pytest.mark.slow

FEW, AT_ONCE, VERY_MANY = 20, 50, 500
_FIRST = random.randrange(1_000, 10**6) if "WORKBENCH_FUZZ" in os.environ else 1_000
"""The seed of the first of very many; ``make fuzz`` draws others every time."""
_MOST_REFUSED, _MOST_LOOSE = 0.3, 0.2
"""Shares of drawn recipes of which little would be compared."""


def rows() -> list[RankRecipe]:
    """Recipes in which every part is at least once, as many parts in each as go together."""
    left: dict[str, list[Any]] = {
        "model": [*MODELS],
        "loss": [*LOSSES],
        "optimizer": [*ALL_DENSE],
        "schedule": [*ALL_SCHEDULES],
        "source": [*SHARED],
        "attached": [*filter(None, ATTACHED)],
        "over": [*OVER],
        "clip": [0.1, 1.0],
        "double": [True, False] * 20,
        "poisoned": [True],
    }
    found: list[RankRecipe] = []
    while any(values for name, values in left.items() if name != "double"):
        recipe = PLAIN
        for name, values in left.items():
            for value in values:
                wider = dataclasses.replace(recipe, **{name: value})
                if is_possible(wider):
                    recipe = wider
                    values.remove(value)
                    break
        assert recipe != PLAIN, f"no recipe has {left}"
        found.append(recipe)
    for first, second in zip(ACTIONS[::2], [*ACTIONS[1::2], "pause"], strict=False):
        there = ((1, SWITCH + "ddp:2"), (2, first), (3, SWITCH + "fsdp:2"), (4, second))
        found.append(dataclasses.replace(PLAIN, model="batch norm", actions=there))
    for layout in MORE_LAYOUTS:
        there = ((2, SWITCH + f"checkpoint+{layout}"), (4, SWITCH + "bf16"))
        found.append(dataclasses.replace(PLAIN, model="blocks", actions=there))
    replicated = ((1, SWITCH + "fsdp:2,hsdp=2"),)  # each rank has a whole batch, and all shards
    found.append(dataclasses.replace(PLAIN, model="centred", actions=replicated))
    sixteen = ((0, SWITCH + "bf16"), (2, SWITCH + "bf16+ddp:2"), (4, SWITCH + "fp16"))
    found.append(dataclasses.replace(PLAIN, loss="summed", actions=sixteen))
    for layout in ("ddp:2", "fsdp:2"):  # a sum over the whole batch is too large for float16
        there = ((0, SWITCH + f"fp16+{layout}"), (2, SWITCH + "fp16"), (5, SWITCH))
        overflows = {"loss": "summed", "optimizer": "sgd, maximize", "actions": there}
        found.append(dataclasses.replace(PLAIN, **overflows))
    merging = ((1, SWITCH + "fsdp:2,keep"), (4, SWITCH))
    found.append(dataclasses.replace(PLAIN, model="low rank, no dropout", actions=merging))
    # its last step of an epoch is refused: ranks that start then have nothing left of the epoch
    found.append(
        RankRecipe(
            model="a method past forward",
            samples=16,
            poisoned=True,
            actions=((0, SWITCH + "fsdp:2"),),
        )
    )
    found.append(dataclasses.replace(PLAIN, source="stream"))
    found.append(dataclasses.replace(PLAIN, model="sparse embedding", optimizer="sparse adam"))
    return found


def name_of(recipe: RankRecipe) -> str:
    return ", ".join(
        f"{field.name}={getattr(recipe, field.name)}"
        for field in dataclasses.fields(recipe)
        if getattr(recipe, field.name) != getattr(PLAIN, field.name)
    )


@pytest.mark.parametrize("recipe", rows(), ids=name_of)
def test_every_part_of_a_recipe(recipe: RankRecipe, server: ForkServer) -> None:
    assert is_possible(recipe)
    check(recipe, server)


def all_right(seeds: Sequence[int], server: ForkServer) -> Counter[str]:
    """Check what these draw; say what came of it, and compare most of it."""
    counts: Counter[str] = Counter()
    loose = 0
    for recipe in map(drawn, seeds):
        try:
            outcome: Outcome = check(recipe, server)
        except ImpossibleError:
            counts["a plain loop cannot"] += 1
            continue
        except AssertionError as error:
            least, fault = shrunk(recipe, str(error).partition("\n\n")[0], server)
            pytest.fail(f"{fault}\n\n{least.script()}")
        counts[outcome.kind] += 1
        loose += bool(outcome.loosely)
    for kind, count in counts.most_common():
        print(f"  {count:4} {kind}")
    print(f"  {loose:4} of them hardly compared in a part")
    assert counts["refused before the start"] <= _MOST_REFUSED * len(seeds)
    assert loose <= _MOST_LOOSE * len(seeds)
    return counts


def test_a_few_drawn_recipes(server: ForkServer) -> None:
    all_right(range(FEW), server)


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(VERY_MANY // AT_ONCE))
def test_very_many_drawn_recipes(part: int, server: ForkServer) -> None:
    begin = _FIRST + part * AT_ONCE
    all_right(range(begin, begin + AT_ONCE), server)


# -- the whole way --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recipe",
    [
        dataclasses.replace(
            PLAIN,
            model="batch norm",
            loss="class weights",
            optimizer="adamw",
            schedule="one cycle",
            actions=((1, SWITCH + "ddp:2"), (4, SWITCH)),
        ),
        dataclasses.replace(
            PLAIN,
            model="blocks",
            optimizer="sgd, momentum",
            clip=0.1,
            double=True,
            actions=((1, SWITCH + "checkpoint+fsdp:2"), (4, SWITCH)),
        ),
    ],
    ids=["ddp", "fsdp"],
)
def test_ranks_that_start_as_ever(recipe: RankRecipe) -> None:
    with ordinary_ranks() as started:
        outcome = check(recipe, started)
    assert outcome.seen.stays == 1
