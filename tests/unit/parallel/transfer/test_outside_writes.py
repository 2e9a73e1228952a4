"""What code writes beside its objects is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.integration.parallel.support import made
from tests.unit.parallel.transfer.test_object_state import Pair
from workbench.parallel.transfer.object_state import ObjectState

HEARD: list[float] = []
TABLE: dict[str, float] = {}
READ: list[int] = [1, 2]
COUNT = 0
LAST = torch.zeros(1)


def heard(value: float) -> None:
    HEARD.append(value)


class Loud(nn.Module):
    number = 0
    log: list[int] = []  # noqa: RUF012 - as people write it

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 5)
        self.own: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global COUNT  # noqa: PLW0603 - as people write it
        COUNT += 1
        TABLE["x"] = READ[0]
        heard(1.0)
        Loud.number += 1
        LAST.add_(1)
        self.own.append(1)
        local: list[int] = []
        local.append(len(READ))
        return self.layer(x)


def counting() -> Callable[..., torch.Tensor]:
    calls, history = 0, list[int]()

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        history.append(calls)
        return nn.functional.cross_entropy(logits, targets)

    return loss


def test_globals_closures_and_attributes_of_classes_are_named(tmp_path: Path) -> None:
    experiment = made(tmp_path, Loud, loss=counting())
    names = ObjectState.of(experiment._training).written_outside()
    assert sorted(names) == [
        "COUNT", "HEARD", "LAST", "Loud.number", "TABLE", "calls", "history"
    ]  # fmt: skip


def test_of_a_quiet_model_nothing_is_said(tmp_path: Path) -> None:
    experiment = made(tmp_path, optimizer="adamw", loss=nn.CrossEntropyLoss())
    assert not ObjectState.of(experiment._training).written_outside()


def test_a_list_of_a_class_of_a_cell_comes_back(tmp_path: Path) -> None:
    space: dict[str, Any] = {"__name__": "__main__", "nn": nn}
    exec(
        "class Cell(nn.Module):\n"
        "    log = []\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(16, 5)\n"
        "    def forward(self, x):\n"
        "        self.log.append(1)\n"
        "        return self.layer(x)\n",
        space,
    )
    pair = Pair(made(tmp_path / "runs", space["Cell"]), tmp_path)
    there: Any = pair.rank.model
    there.log.append(1)
    pair.bring_back()
    assert len(space["Cell"].log) == 1
