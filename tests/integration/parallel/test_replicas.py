"""Ranks whose weights or rates come apart say so: nothing else would show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from tests.integration.parallel.support import Net, made
from workbench.experiment import Experiment


class Still(Net):
    mean = 0.0


class Watched(Still):
    """Keeps the mean of its last batch, to be looked at."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = float(x.mean())
        return super().forward(x)


def scaled(model: Still, optimizer: torch.optim.Optimizer) -> None:
    """A larger step for a larger mean: on a rank that of its rows."""

    def scale(*_: Any) -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad *= 1 + abs(model.mean)

    optimizer.register_step_pre_hook(scale)


def by_the_mean(model: Still, optimizer: torch.optim.Optimizer) -> LRScheduler:
    return LambdaLR(optimizer, lambda step: 1 / (1 + step + abs(model.mean)))


def trained(
    runs: Path, layout: str, kind: type[Still] = Watched, *, hook: bool = False, rate: bool = False
) -> Experiment:
    torch.manual_seed(0)
    model = kind()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if hook:
        scaled(model, optimizer)
    scheduler = by_the_mean(model, optimizer) if rate else None
    exp = made(runs, lambda: model, optimizer=optimizer, scheduler=scheduler, modes=layout)
    exp.run(steps=6).wait(120)
    return exp


def apart(exp: Experiment) -> list[str]:
    return [note for note in exp.notes if "not what one process trains" in note]


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize("layout", ["ddp:2", "fsdp:2"])
def test_a_hook_of_the_optimizer_that_reads_a_rank_s_own_is_reported(
    layout: str, tmp_path: Path
) -> None:
    exp = trained(tmp_path, layout, hook=True)
    (note,) = apart(exp)
    assert note.startswith("stem.weight, stem.bias, head.weight and 13 more are not the same")
    exp.close()


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize("layout", ["ddp:2", "fsdp:2"])
def test_a_rate_that_follows_a_rank_s_own_is_reported(layout: str, tmp_path: Path) -> None:
    exp = trained(tmp_path, layout, rate=True)
    (note,) = apart(exp)
    assert note.startswith("the optimizer's lr")
    exp.close()


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_that_agree_say_nothing(tmp_path: Path) -> None:
    exp = trained(tmp_path, "fsdp:2", Still, hook=True, rate=True)
    assert not apart(exp)
    exp.close()
