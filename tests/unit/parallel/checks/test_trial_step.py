"""Optimizers are distinguished by what they do: to a part what they do to the whole, or not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from workbench.parallel.checks.trial_step import draws, steps_by_element

Made = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
SHAPES = [(16, 8), (16,), (5, 16), (5,), (1, 8), (4, 3, 2, 2)]


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(*shape)) for shape in SHAPES]


class Own(torch.optim.Optimizer):
    """One of the user's own: ``change`` gives the update of a gradient."""

    def __init__(self, params: Iterable[nn.Parameter], change: Callable[..., Any]) -> None:
        super().__init__(params, {"lr": 0.05})
        self.change, self.mine = change, [p for g in self.param_groups for p in g["params"]]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.mine:
            p.sub_(self.change(p, p.grad), alpha=0.05)


class Wrapped(torch.optim.Optimizer):
    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {"lr": 0.1})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1)

    def step(self, closure: Any = None) -> None:
        self.base.step()


def of_torch(name: str, **settings: Any) -> Made:
    return lambda p: getattr(torch.optim, name)(p, lr=0.01, **settings)


def own(change: Callable[..., Any]) -> Made:
    return lambda p: Own(p, change)


def hooked(p: list[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(p, lr=0.1)
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer


def warming_up(p: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Its first rate is 0, and the schedule has put a ``step`` of its own on it."""
    optimizer = torch.optim.AdamW(p)
    lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    return optimizer


def unit_wise(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """Adaptive clipping by rows, which lie whole on a rank."""
    if p.ndim < 2:
        return g
    norms = (one.flatten(1).norm(dim=1).view(-1, *[1] * (p.ndim - 1)) for one in (p, g))
    ours, theirs = norms
    return g * (ours.clamp(min=1e-3) * 0.01 / theirs).clamp(max=1.0)


BY_ELEMENT: dict[str, Made] = {
    name: of_torch(name)
    for name in (
        "SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "ASGD",
        "RMSprop", "Rprop",
    )
} | {
    "AdamW, fused": of_torch("AdamW", fused=True, amsgrad=True),
    "Adam, foreach": of_torch("Adam", foreach=True),
    "SGD, momentum": of_torch("SGD", momentum=0.9, nesterov=True, weight_decay=0.1),
    "signs": own(lambda p, g: g.sign()),
    "clipped values": own(lambda p, g: g.clamp(-0.1, 0.1)),
    "by rows": own(unit_wise),
    "warming up": warming_up,
}  # fmt: skip
OTHERS: dict[str, Made] = {
    "Adafactor": of_torch("Adafactor"),
    "Muon": lambda p: torch.optim.Muon([one for one in p if one.ndim == 2], lr=0.01),
    "LARS, by a number": own(lambda p, g: g * (p.norm().item() / (g.norm().item() + 1e-3))),
    "LARS, by a tensor": own(lambda p, g: g * (p.norm() / (g.norm() + 1e-3))),
    "a mean": own(lambda p, g: g - g.mean()),
    "a mean of rows": own(lambda p, g: g - g.mean(0)),
    "a largest": own(lambda p, g: g / (g.abs().amax() + 1e-3) if g.numel() else g),
    "largest gradients alone": own(
        lambda p, g: g * (g.abs() >= g.abs().flatten().kthvalue(max(1, g.numel() // 2))[0])
    ),
    "noise": own(lambda p, g: g + torch.randn_like(g)),
    "by the place of a row": own(
        lambda p, g: g * torch.arange(len(g)).view(-1, *[1] * (g.ndim - 1))
    ),
    "nothing": own(lambda p, g: g * 0),
    "one in another": Wrapped,
    "hooks": hooked,
}


def clips(p: list[nn.Parameter]) -> torch.optim.Optimizer:
    class Clips(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            every = [one for group in self.param_groups for one in group["params"]]
            nn.utils.clip_grad_norm_(every, 1.0)
            super().step()

    return Clips(p, lr=0.1)


OTHERS["a clip of all together"] = clips


@pytest.mark.parametrize("num_shards", [2, 8])
@pytest.mark.parametrize("name", BY_ELEMENT)
def test_what_goes_by_elements_may_step_on_shards(name: str, num_shards: int) -> None:
    given = parameters()
    assert steps_by_element(BY_ELEMENT[name](given), given, num_shards)


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_may_not(name: str) -> None:
    given = parameters()
    assert not steps_by_element(OTHERS[name](given), given, 2)


@pytest.mark.parametrize("name", ["AdamW", "clipped values", "noise", "a clip of all together"])
def test_a_trial_leaves_no_trace(name: str) -> None:
    given = parameters()
    optimizer = (BY_ELEMENT | OTHERS)[name](given)
    if name == "AdamW":
        for parameter in given:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    before = copy.deepcopy((given, optimizer.state_dict()))
    gradients = [parameter.grad for parameter in given]
    drawn = torch.get_rng_state()
    steps_by_element(optimizer, given, 2)
    assert all(map(torch.equal, given, before[0]))
    assert [parameter.grad for parameter in given] == gradients
    torch.testing.assert_close(optimizer.state_dict(), before[1])
    assert torch.equal(drawn, torch.get_rng_state())
    assert optimizer.param_groups[0]["params"] == given


def test_what_is_not_sharded_is_not_asked_of() -> None:
    """A step that goes by a norm is fine for parameters that stay whole."""
    given = parameters()
    assert steps_by_element(OTHERS["LARS, by a number"](given), [], 2)
    given[0].requires_grad_(False)
    assert steps_by_element(OTHERS["LARS, by a number"](given), given[:1], 2)


def test_an_optimizer_that_draws_numbers_is_known() -> None:
    given = [*parameters(), nn.Parameter(torch.ones(()))]
    before = torch.get_rng_state()
    assert draws(OTHERS["noise"](given))
    assert not draws(torch.optim.AdamW(given))
    assert torch.equal(before, torch.get_rng_state())
