"""The recipe of a loop of one's own, as the documentation has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.unit.experiment.plain_loop import BATCH, assert_equal, data, seeded
from workbench.experiment import EpochSampler, Experiment

PAGE = Path(__file__).parents[4] / "docs" / "training.md"


def drops() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Dropout(), nn.Linear(16, 3))


class Nothing:
    """A schedule that leaves the rate: the recipe has two, of which one may be meant."""

    def step(self) -> None:
        """Nothing."""


@pytest.mark.parametrize("kind", ["loader", "arrays"])
def test_the_recipe_gives_the_numbers_of_an_experiment(tmp_path: Path, kind: str) -> None:
    loop, order, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    model = seeded(drops)
    names: dict[str, Any] = {
        "torch": torch,
        "DataLoader": DataLoader,
        "EpochSampler": EpochSampler,
        "data": TensorDataset(*data()),
        "batch_size": BATCH,
        "seed": 5,
        "epochs": 2,
        "model": model,
        "loss_fn": F.cross_entropy,
        "clip": 1.0,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "scheduler": Nothing(),
        "validate": lambda: None,
    }
    exec(order, names)
    exec(loop, names)
    found = seeded(drops)
    train = data() if kind == "arrays" else DataLoader(names["data"], BATCH, shuffle=True)
    exp = Experiment(
        found,
        train,
        optimizer=torch.optim.SGD(found.parameters(), lr=0.1),
        batch_size=BATCH,
        seed=5,
        clip_grad_norm=1.0,
        runs=tmp_path,
        device="cpu",
    )
    exp.run(epochs=2, wait=True)
    assert_equal(found, model)
