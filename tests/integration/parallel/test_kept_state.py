"""What a model, an optimizer and a schedule keep in Python is that of a plain loop after ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.parallel.support import losses, made, rows

HEARD: list[int] = []
STEPS = 4, 8, 12
"""Steps at which ranks begin, the training comes back, and the run ends; 4 to an epoch."""

pytestmark = pytest.mark.usefixtures("forked_ranks")


class Keeps(nn.Module):
    """A frozen body in eval mode, a temperature that a count anneals, and a buffer that counts."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.a, self.b = (nn.Linear(8, 8, bias=False) for _ in range(2))
        self.head = nn.Linear(8, 5)
        self.register_buffer("n", torch.zeros(()))
        self.calls, self.history = 0, list[int]()
        if tied:
            self.b.weight.data = self.a.weight.data
        self.body.requires_grad_(False).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
            self.n = self.n + 1
            self.history.append(self.calls)
            HEARD.append(self.calls)
        x = self.b(torch.relu(self.a(self.body(x))))
        return self.head(x) / (1 + 0.1 * self.calls + 0.05 * self.n)


class Own(torch.optim.Optimizer):
    """Steps by attributes of its own; of one the class has a default."""

    beta = 0.0

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        self.beta, self.count = 0.9, 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.count += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                m = self.state[parameter].setdefault("m", torch.zeros_like(parameter))
                m.mul_(self.beta).add_(parameter.grad)
                parameter.add_(m, alpha=-group["lr"] / (1 + 0.1 * self.count))


class Falling:
    """A schedule without ``state_dict``."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.n = optimizer, 0

    def step(self) -> None:
        self.n += 1
        self.optimizer.param_groups[0]["lr"] = 0.1 / (1 + self.n)


def make(*, tied: bool) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = Keeps(tied=tied)
    optimizer = Own([one for one in model.parameters() if one.requires_grad])
    return model, optimizer, Falling(optimizer)


def plain(*, tied: bool) -> tuple[Any, Any, Any, torch.Tensor]:
    """A plain loop, the judge."""
    model, optimizer, schedule = make(tied=tied)
    found: list[float] = []
    for step in range(STEPS[-1]):
        at = step % 4 * 16
        optimizer.zero_grad()
        x, y = (one[at : at + 16] for one in rows())
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
        if step % 4 == 3:
            schedule.step()
    return model, optimizer, schedule, torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("layout", ["ddp:2", "fsdp:2"])
def test_it_is_that_of_a_plain_loop(tmp_path: Path, layout: str) -> None:
    tied = layout == "ddp:2"
    judge, by, rate, right = plain(tied=tied)
    model, optimizer, schedule = make(tied=tied)
    body, history = model.body, model.history
    data = tuple(one[:64] for one in rows())
    settings = {"optimizer": optimizer, "scheduler": schedule, "shuffle": False}
    experiment = made(tmp_path, lambda: model, data, **settings)
    before = 0
    for modes, until in zip(("", layout, ""), STEPS, strict=True):
        experiment.modes = modes
        experiment.run(steps=until - before, wait=True)
        before = until
    torch.testing.assert_close(losses(experiment).double(), right, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        dict(model.state_dict()), dict(judge.state_dict()), rtol=1e-6, atol=1e-6
    )
    assert (model.calls, float(model.n), model.history) == (12, 12, judge.history)
    assert (optimizer.count, schedule.n) == (by.count, rate.n)
    assert experiment.learning_rate == pytest.approx(by.param_groups[0]["lr"])
    assert [m.training for m in model.modules()] == [m.training for m in judge.modules()]
    assert experiment.model is model
    assert model.body is body
    assert model.history is history
    assert experiment.optimizer is optimizer
    assert any(
        "writes into HEARD stays with the ranks" in note
        for note in experiment._training.board.notes
    )
