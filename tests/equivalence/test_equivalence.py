"""Whatever the recipe, and whatever is done in its course: the numbers are a plain loop's.

``make test`` draws a few recipes, ``make test-all`` 500 and ``make fuzz`` many thousands.
Every model, loss, optimizer, schedule, source and action is in at least one recipe of its own.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings

from tests.equivalence.check import ImpossibleError, check
from tests.equivalence.losses import LOSSES
from tests.equivalence.models import MODELS
from tests.equivalence.optimizers import DENSE, OVER, SCHEDULES, SPARSE
from tests.equivalence.recipes import ACTIONS, Recipe, is_possible, recipes
from tests.equivalence.sources import SOURCES, VALIDATIONS

FEW, MANY, VERY_MANY = 25, 500, 20_000


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def rows() -> list[Recipe]:
    """Each part of a recipe once, beside parts that are plain."""
    whole = Recipe(model="dropout", validates=True, epochs=3, samples=22)
    found = [
        dataclasses.replace(whole, model=name, optimizer="sgd" if one.is_sparse else "adamw")
        for name, one in MODELS.items()
    ]
    found += [dataclasses.replace(whole, loss=name) for name in LOSSES]
    found += [dataclasses.replace(whole, optimizer=name, over="groups") for name in DENSE]
    found += [
        dataclasses.replace(whole, model="sparse embedding", optimizer=name) for name in SPARSE
    ]
    found += [dataclasses.replace(whole, schedule=name) for name in SCHEDULES]
    found += [dataclasses.replace(whole, source=name) for name in SOURCES]
    found += [dataclasses.replace(whole, actions=((2, name), (5, name))) for name in ACTIONS]
    # without statistics, what is validated goes by which samples make a batch
    alike = dataclasses.replace(whole, model="batch norm without statistics", samples=24)
    found += [
        dataclasses.replace(alike, source=source, validation=name)
        for source in ("loader's own order", "loader's own generator", "weighted sampler")
        for name in VALIDATIONS
    ]
    found += [
        dataclasses.replace(whole, source="loader's own order", validation=name)
        for name in VALIDATIONS
    ]
    swapped = dataclasses.replace(whole, optimizer="adamw", actions=((2, "swap"), (5, "swap")))
    found += [dataclasses.replace(swapped, over=over) for over in OVER]
    found += [dataclasses.replace(swapped, model=name) for name in ("tied", "batch norm")]
    found += [dataclasses.replace(swapped, model="half frozen", loss="with parameters")]
    found += [dataclasses.replace(whole, precision=name) for name in ("bf16", "fp16")]
    recurrent = dataclasses.replace(whole, model="recurrent", optimizer="adamw")
    found += [
        dataclasses.replace(recurrent, actions=((2, name), (5, name)))
        for name in ("pause", "random numbers", "eval and a look")
    ]
    found += [
        dataclasses.replace(whole, precision="fp16", optimizer=name, schedule="exponential")
        for name in ("adamw", "adam, fused", "sgd, fused")
    ]
    found += [dataclasses.replace(whole, clip=0.1, over=over) for over in ("all", "head")]
    found += [dataclasses.replace(whole, poisoned=True, model="batch norm", samples=24)]
    return list(dict.fromkeys(found))


def name_of(recipe: Recipe) -> str:
    plain = Recipe(model="dropout", validates=True, epochs=3, samples=22)
    changed = {
        field.name: getattr(recipe, field.name)
        for field in dataclasses.fields(recipe)
        if getattr(recipe, field.name) != getattr(plain, field.name)
    }
    return ", ".join(f"{key}={value}" for key, value in changed.items()) or "plain"


@pytest.mark.parametrize("recipe", rows(), ids=name_of)
def test_every_part_of_a_recipe(recipe: Recipe) -> None:
    assert is_possible(recipe)
    check(recipe)


def drawn(recipe: Recipe) -> None:
    assume(is_possible(recipe))
    try:
        check(recipe)
    except ImpossibleError:
        assume(False)


SETTINGS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@settings(SETTINGS, max_examples=FEW)
@given(recipes())
def test_a_few_drawn_recipes(recipe: Recipe) -> None:
    drawn(recipe)


@pytest.mark.slow
@settings(SETTINGS, max_examples=MANY)
@given(recipes())
def test_many_drawn_recipes(recipe: Recipe) -> None:
    drawn(recipe)


@pytest.mark.fuzz
@settings(SETTINGS, max_examples=VERY_MANY, derandomize=False)
@given(recipes())
def test_very_many_drawn_recipes(recipe: Recipe) -> None:
    drawn(recipe)
