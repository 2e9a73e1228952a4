"""What torch draws is the same for every element, and all that follows from it is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from workbench.parallel.without_chance import WithoutChance

ALIKE: dict[str, Callable[[], torch.Tensor]] = {
    "dropout": lambda: F.dropout(torch.ones(50), 0.5),
    "channels": lambda: F.dropout2d(torch.ones(1, 50, 1, 1), 0.5).flatten(),
    "alpha dropout": lambda: F.alpha_dropout(torch.ones(50), 0.5, training=True),
    "feature alpha": lambda: F.feature_alpha_dropout(torch.ones(1, 50, 1), 0.5, True).flatten(),
    "rand": lambda: torch.rand(50),
    "rand like": lambda: torch.rand_like(torch.ones(50)),
    "uniform": lambda: torch.empty(50).uniform_(-3, 5),
    "randn": lambda: torch.randn(50),
    "normal": lambda: torch.normal(2.0, 3.0, (50,)),
    "normal of tensors": lambda: torch.normal(torch.full((50,), 2.0), torch.ones(50)),
    "normal in place": lambda: torch.empty(50).normal_(1, 2),
    "bernoulli": lambda: torch.bernoulli(torch.full((50,), 0.5)),
    "bernoulli in place": lambda: torch.empty(50).bernoulli_(0.5),
    "integers": lambda: torch.randint(2, 9, (50,)),
    "integers like": lambda: torch.randint_like(torch.ones(50), 9),
    "exponential": lambda: torch.empty(50).exponential_(2),
    "gumbel": lambda: F.gumbel_softmax(torch.ones(50, 3))[:, 0],
    "multinomial": lambda: torch.multinomial(torch.tensor([[0.2, 0.5, 0.3]] * 50), 1)[:, 0],
}


@pytest.mark.parametrize("name", ALIKE)
def test_every_element_gets_the_same(name: str) -> None:
    with WithoutChance() as chance:
        first, second = ALIKE[name](), ALIKE[name]()
    assert len(first) == 50
    assert bool((first == first[0]).all())
    assert torch.equal(first, second)
    assert chance.is_known
    assert len(ALIKE[name]().unique()) > 1, "it draws otherwise"


def test_an_order_is_that_of_numbers() -> None:
    with WithoutChance():
        assert torch.randperm(20).tolist() == list(range(20))


def test_what_is_drawn_by_an_operation_of_its_own_kind_is_told() -> None:
    with WithoutChance() as chance:
        F.rrelu(torch.randn(20), training=True)
    assert not chance.is_known


def test_a_backward_goes_by_what_was_not_dropped() -> None:
    x = torch.ones(50, requires_grad=True)
    with WithoutChance():
        F.dropout(x, 0.5).sum().backward()
    assert x.grad is not None
    assert len(x.grad.unique()) == 1


def test_layers_with_dropout_are_known() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
    x = torch.randn(3, 4, 8)
    with WithoutChance() as chance:
        assert torch.equal(layer(x), layer(x))
    assert chance.is_known
