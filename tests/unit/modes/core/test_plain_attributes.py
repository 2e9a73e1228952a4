"""A block that counts, and is computed again: it counts once, and computes the same."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import torch
from torch import nn

from workbench.modes import ModeSet
from workbench.modes.core.plain_attributes import PlainAttributes


class Counting(nn.Module):
    """Its outputs go by what it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.calls, self.heard, self.kept = 0, [0], {"calls": 0}
        self.last: Any = None
        self.recent: deque[int] = deque(maxlen=2)
        self.seen: set[int] = set()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.heard.append(self.calls)
        self.kept["calls"] = self.calls
        self.recent.append(self.calls)
        self.seen = self.seen | {self.calls}
        if self.calls == 1:
            self.first = self.calls
        x = torch.tanh(self.inner(x)) / (1 + 0.1 * self.calls + len(self.heard))
        self.last = x.detach()
        return x


def trained(modes: str, steps: int = 4) -> tuple[list[torch.Tensor], nn.Sequential]:
    torch.manual_seed(0)
    model = nn.Sequential(Counting(), Counting(), nn.Linear(4, 2))
    modeset = ModeSet.parse(modes, torch.device("cpu"))
    modeset.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    gradients: list[torch.Tensor] = []
    for _ in range(steps):
        optimizer.zero_grad()
        model(
            torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
        ).square().sum().backward()
        gradients += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    return gradients, model


def test_a_count_that_a_block_keeps_counts_once_and_gradients_are_the_same() -> None:
    plain, ours = trained(""), trained("checkpoint")
    for expected, found in zip(plain[0], ours[0], strict=True):
        assert torch.equal(expected, found)
    for expected, found in zip(plain[1][:2], ours[1][:2], strict=True):
        for name in ("calls", "heard", "kept", "recent", "seen", "first"):
            assert getattr(found, name) == getattr(expected, name), name
        assert torch.equal(found.last, expected.last)


def test_containers_stay_the_objects_that_they_were() -> None:
    module = Counting()
    before = PlainAttributes(module)
    held = module.heard, module.kept, module.recent
    module(torch.randn(2, 4))
    then = copy.deepcopy(held)
    with before.restored():
        assert (module.calls, module.heard, module.kept, module.last) == (
            0,
            [0],
            {"calls": 0},
            None,
        )
        assert not hasattr(module, "first")
        assert module.heard is held[0]
        module(torch.randn(2, 4))
    assert (module.heard, module.kept, module.recent) == then
    assert module.heard is held[0]
    assert module.calls == module.first == 1
    assert module.last is not None
