"""Paths through a model: what no step before had, and what may depend on a whole batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from workbench.parallel.checks.model_paths import ModelPaths, paths_of

LAYER = nn.Linear(4, 4)
X = torch.randn(3, 4)


def plain(times: int = 1) -> torch.Tensor:
    x = X
    for _ in range(times):
        x = LAYER(x).relu()
    return x


def test_layers_and_elements_say_nothing_of_a_batch() -> None:
    assert paths_of(plain(3).transpose(0, 1).exp() * 2) == set()


def test_a_mean_does() -> None:
    x = plain()
    assert ("SubBackward0", "MeanBackward1 0") in paths_of(x - x.mean(0))


def test_the_first_step_is_known_and_every_path_is_new_once() -> None:
    paths = ModelPaths(frozenset())
    assert not paths.new(plain().softmax(1))
    assert not paths.new(plain(2))
    assert not paths.new(plain(2).softmax(1))
    x = plain()
    assert paths.new(x - x.mean(0))
    assert not paths.new(x - x.mean(0))


def test_what_another_stretch_knew_is_known() -> None:
    x = plain()
    before = ModelPaths(frozenset())
    before.new(x - x.mean(0))
    paths = ModelPaths(before.known)
    assert not paths.new(x)
    assert not paths.new(x - x.mean(0))


def test_over_another_dimension_it_is_another_way() -> None:
    def normed(over: int) -> torch.Tensor:
        x = plain()
        return LAYER((x - x.mean(over, keepdim=True)) / x.var(over, keepdim=True))

    paths = ModelPaths(frozenset())
    assert not paths.new(normed(-1))
    assert not paths.new(normed(-1))
    assert paths.new(normed(0))


@pytest.mark.parametrize(
    ("take", "is_new"),
    [
        (lambda x: x - x[0], True),
        (lambda x: x[:, 1:], False),
        (lambda x: x + x.flip(0), True),
        (lambda x: x.unbind(1)[0], False),
        (lambda x: x.split(2)[0], True),
    ],
)
def test_what_takes_samples_by_their_place(
    take: Callable[[torch.Tensor], torch.Tensor], is_new: bool
) -> None:
    paths = ModelPaths(frozenset())
    assert not paths.new(plain())
    assert paths.new(take(plain())) == is_new


def test_a_term_of_the_loss_is_looked_at_too() -> None:
    x, paths = plain(), ModelPaths(frozenset())
    assert not paths.new(x, x.sum())
    assert not paths.new(x, x.sum())
    assert paths.new(x, x.sum() + x.std())
