"""Ways through a model: what no step before had, and what says something of a batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from workbench.parallel.checks.model_paths import Ways, ways_of

LAYER = nn.Linear(4, 4)
X = torch.randn(3, 4)


def plain(times: int = 1) -> torch.Tensor:
    x = X
    for _ in range(times):
        x = LAYER(x).relu()
    return x


def test_layers_and_elements_say_nothing_of_a_batch() -> None:
    assert ways_of(plain(3).transpose(0, 1).exp() * 2) == set()


def test_a_mean_does() -> None:
    x = plain()
    assert ("SubBackward0", "MeanBackward1 0") in ways_of(x - x.mean(0))


def test_the_first_step_is_known_and_every_way_is_new_once() -> None:
    ways = Ways(frozenset())
    assert not ways.new(plain().softmax(1))
    assert not ways.new(plain(2))
    assert not ways.new(plain(2).softmax(1))
    x = plain()
    assert ways.new(x - x.mean(0))
    assert not ways.new(x - x.mean(0))


def test_what_another_stretch_knew_is_known() -> None:
    x = plain()
    before = Ways(frozenset())
    before.new(x - x.mean(0))
    ways = Ways(before.known)
    assert not ways.new(x)
    assert not ways.new(x - x.mean(0))


def test_over_another_dimension_it_is_another_way() -> None:
    def normed(over: int) -> torch.Tensor:
        x = plain()
        return LAYER((x - x.mean(over, keepdim=True)) / x.var(over, keepdim=True))

    ways = Ways(frozenset())
    assert not ways.new(normed(-1))
    assert not ways.new(normed(-1))
    assert ways.new(normed(0))


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
    ways = Ways(frozenset())
    assert not ways.new(plain())
    assert ways.new(take(plain())) == is_new


def test_a_term_of_the_loss_is_looked_at_too() -> None:
    x, ways = plain(), Ways(frozenset())
    assert not ways.new(x, x.sum())
    assert not ways.new(x, x.sum())
    assert ways.new(x, x.sum() + x.std())
