"""Optimizers and schedules of one's own, beside all of torch's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from tests.equivalence import optimizers
from tests.equivalence.optimizers import DENSE, SCHEDULES, Make, ScheduleOf


class Lars(torch.optim.Optimizer):
    """Asks every parameter and gradient for its norm."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    ratio = min(p.norm().item() / (p.grad.norm().item() + 1e-3), 5.0)
                    p.add_(p.grad, alpha=-group["lr"] * ratio)


class Counting(torch.optim.Optimizer):
    """Has attributes of its own, which torch's ``__getstate__`` leaves out."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, {"lr": lr})
        self.beta, self.updates = 0.5, 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.updates += 1
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                kept = self.state[p].setdefault("mean", torch.zeros_like(p))
                kept.mul_(self.beta).add_(p.grad)
                p.add_(kept, alpha=-group["lr"] / self.updates)


class Marked(torch.optim.Optimizer):
    """Goes by a mark on every parameter."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, {"lr": lr})
        for at, p in enumerate(p for group in self.param_groups for p in group["params"]):
            p.times = 1.0 + at % 3

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            p.times = getattr(p, "times", 2.0)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"] * getattr(p, "times", 1.0))


class Listed(torch.optim.Optimizer):
    """Goes by a list of its own, and not by its groups."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        self.mine: list[nn.Parameter] = []
        super().__init__(params, {"lr": lr})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self.mine.extend(self.param_groups[-1]["params"])

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.mine:
            if p.grad is not None:
                p.add_(p.grad, alpha=-self.param_groups[0]["lr"])


OWN: dict[str, Make] = {
    "norms read": Lars,
    "attributes of its own": Counting,
    "marks on parameters": Marked,
    "a list of its own": Listed,
    "muon": lambda p: torch.optim.Muon(p, lr=0.01),
}
ALL_DENSE = {**DENSE, **OWN}


class Falling:
    """A schedule of one's own, which nobody can ask for its state."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.count = optimizer, 0

    def step(self) -> None:
        self.count += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 0.05 / (1 + self.count)


ALL_SCHEDULES: dict[str, ScheduleOf] = {
    **SCHEDULES,
    "of one's own": ScheduleOf(lambda optimizer, steps: Falling(optimizer), "step"),
}


def make_optimizer(
    name: str, over: str, model: nn.Module, more: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """As `tests.equivalence.optimizers.make_optimizer`, those of one's own among them."""
    if name not in OWN:
        return optimizers.make_optimizer(name, over, model, more)
    make: Callable[[Any], torch.optim.Optimizer] = OWN[name]
    trained = [p for p in model.parameters() if p.requires_grad]
    trained = [*(trained[-2:] if over == "head" else trained), *more]
    if name == "muon":
        trained = [p for p in trained if p.ndim == 2]
    if over == "groups" and len(trained) > 2:
        first = make([trained[0]])
        first.add_param_group({"params": trained[1:], "lr": first.param_groups[0]["lr"] * 0.5})
        return first
    return make(trained)
