"""The numbers of a plain loop on a real card too: every part of a recipe, and some drawn ones.

What torch computes there otherwise from run to run (sums by atomic additions) is left out, as
`tests.equivalence.check` says.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings

from tests.equivalence.check import ImpossibleError, check
from tests.equivalence.recipes import Recipe, is_possible, recipes
from tests.equivalence.test_equivalence import name_of, rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DRAWN = 100


def there(recipe: Recipe) -> Recipe:
    return dataclasses.replace(recipe, device="cuda")


@pytest.mark.parametrize("recipe", rows(), ids=name_of)
def test_every_part_of_a_recipe(recipe: Recipe) -> None:
    try:
        check(there(recipe))
    except ImpossibleError as error:
        pytest.skip(str(error).splitlines()[0])


@settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=DRAWN,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(recipes())
def test_drawn_recipes(recipe: Recipe) -> None:
    assume(is_possible(recipe))
    try:
        check(there(recipe))
    except ImpossibleError:
        assume(False)
