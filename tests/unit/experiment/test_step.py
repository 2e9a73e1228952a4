from __future__ import annotations

import torch
from torch import nn

from workbench.experiment.step import clear_gradients


def with_gradients() -> nn.Module:
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    return model


def test_gradients_of_every_group_are_cleared_also_of_groups_added_later() -> None:
    first, second, apart = with_gradients(), with_gradients(), with_gradients()
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    optimizer.add_param_group({"params": second.parameters()})
    clear_gradients(optimizer)
    assert [p.grad for m in (first, second) for p in m.parameters()] == [None] * 4
    assert apart.weight.grad is not None


def test_an_optimizer_with_its_own_way_of_clearing_keeps_it() -> None:
    class Keeps(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = True) -> None:
            super().zero_grad(set_to_none=False)

    model = with_gradients()
    clear_gradients(Keeps(model.parameters(), lr=0.1))
    assert torch.equal(model.weight.grad, torch.zeros(2, 2))
