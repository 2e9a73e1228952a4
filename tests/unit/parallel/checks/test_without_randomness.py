"""What torch draws is the same for every element, and all that follows from it is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from workbench.parallel.checks.without_randomness import WithoutChance

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


@pytest.mark.parametrize(
    "order",
    [
        lambda: torch.randperm(20),
        lambda: torch.rand(20).argsort(),
        lambda: torch.rand(20).topk(20).indices,
    ],
)
def test_an_order_is_not_that_of_the_samples(order: Callable[[], torch.Tensor]) -> None:
    with WithoutChance():
        found = order().tolist()
    assert found == list(range(19, -1, -1))


def test_other_orders_are_their_own() -> None:
    with WithoutChance():
        torch.rand(3)
        assert torch.tensor([3.0, 1.0, 2.0]).argsort().tolist() == [1, 2, 0]


def test_attention_drops_for_all_alike() -> None:
    attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    x = torch.randn(3, 4, 8, requires_grad=True)
    with WithoutChance() as chance:
        whole = attention(x, x, x, need_weights=False)[0]
        one = attention(x[:1], x[:1], x[:1], need_weights=False)[0]
        (of_whole,) = torch.autograd.grad(whole.square().sum(), x)
        (of_one,) = torch.autograd.grad(one.square().sum(), x)
    assert chance.is_known
    torch.testing.assert_close(one, whole[:1])
    torch.testing.assert_close(of_one[:1], of_whole[:1])
