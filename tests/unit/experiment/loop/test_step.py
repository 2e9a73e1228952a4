from __future__ import annotations

import torch
from torch import nn

from workbench.experiment.loop.step import clear_gradients


def with_gradients() -> nn.Module:
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    return model


def test_every_gradient_is_cleared_whether_the_optimizer_holds_it_or_not() -> None:
    held, extra, apart = with_gradients(), with_gradients(), with_gradients()
    optimizer = torch.optim.SGD(held.parameters(), lr=0.1)
    clear_gradients(optimizer, [*held.parameters(), *extra.parameters()])
    assert [p.grad for m in (held, extra) for p in m.parameters()] == [None] * 4
    assert apart.weight.grad is not None


def test_an_optimizer_with_its_own_way_of_clearing_keeps_it() -> None:
    class Keeps(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = True) -> None:
            super().zero_grad(set_to_none=False)

    model, extra = with_gradients(), with_gradients()
    parameters = [*model.parameters(), *extra.parameters()]
    clear_gradients(Keeps(model.parameters(), lr=0.1), parameters)
    assert torch.equal(model.weight.grad, torch.zeros(2, 2))
    assert extra.weight.grad is None
