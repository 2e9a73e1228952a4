"""The numbers of a plain loop on a real card too: every part of a recipe, and some drawn ones.

What torch computes there otherwise from run to run (sums by atomic additions) is left out, as
`tests.equivalence.check` says.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings

from tests.equivalence.check import ImpossibleError, check
from tests.equivalence.recipes import Recipe, recipes
from tests.equivalence.test_equivalence import SETTINGS, drawn, name_of, rows

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


@settings(SETTINGS, max_examples=DRAWN)
@given(recipes())
def test_drawn_recipes(recipe: Recipe) -> None:
    drawn(there(recipe))
