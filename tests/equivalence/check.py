"""One recipe, both ways."""

from __future__ import annotations

import math
import warnings

import torch

from tests.equivalence import ours, plain
from tests.equivalence.recipes import Recipe
from tests.equivalence.trace import difference

TRIES = 5
"""How often a plain loop is repeated where an experiment differs from it."""


class ImpossibleError(Exception):
    """Torch has no operation for this recipe: a plain loop raises."""


def check(recipe: Recipe) -> None:
    """Train ``recipe`` by hand and by an experiment, and compare everything.

    Raises:
        AssertionError: the first thing that differs, and a program that repeats it.
        ImpossibleError: it cannot be trained by hand either.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            by_hand = plain.run(recipe)
        except (RuntimeError, ValueError, TypeError, LookupError) as error:
            raise ImpossibleError(str(error)) from error
        if not all(map(math.isfinite, by_hand.losses)):
            raise ImpossibleError("a plain loop goes on with weights that are NaN")
        try:
            found = difference(ours.run(recipe, len(by_hand.losses)), by_hand)
        except Exception as error:  # what a plain loop does not raise
            found = f"it raises {type(error).__name__}: {error}"
            raise AssertionError(f"{found}\n\n{recipe.script()}") from error
        finally:
            torch.set_grad_enabled(True)
        if found and any(difference(plain.run(recipe), by_hand) for _ in range(TRIES)):
            # torch 2.13: a fused SGD whose first update was skipped begins with memory as it was;
            # on a GPU gradients that are sparse are summed in any order
            raise ImpossibleError("a plain loop does not repeat itself")
    assert not found, f"{found}\n\n{recipe.script()}"
