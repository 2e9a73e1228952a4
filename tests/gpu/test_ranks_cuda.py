"""The numbers of a plain loop on NCCL ranks too: every part of a recipe. Needs a GPU.

With several cards two ranks share each batch, as on the CPU. NCCL refuses two ranks on one card, so
there one rank has all of it: what is sent, comes back and is laid out is held, and what is divided
is not.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.equivalence.check import ImpossibleError
from tests.equivalence.ranks.check import check, ordinary_ranks
from tests.equivalence.ranks.recipes import RankRecipe
from tests.equivalence.ranks.test_ranks import name_of, rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def there(recipe: RankRecipe, device: str, ranks: int) -> RankRecipe:
    """``recipe`` on a device, with as many ranks as it has."""
    actions = tuple(
        (after, name.replace(",hsdp=2", "").replace("p:2", f"p:{ranks}") if ranks < 2 else name)
        for after, name in recipe.actions
    )
    return dataclasses.replace(recipe, device=device, actions=actions)


@pytest.mark.parametrize("recipe", rows(), ids=name_of)
def test_every_part_of_a_recipe(recipe: RankRecipe) -> None:
    with ordinary_ranks() as started:
        try:
            check(there(recipe, "cuda", min(2, torch.cuda.device_count())), started)
        except ImpossibleError as error:
            pytest.skip(str(error).splitlines()[0])
