"""A class that is redefined while its model trains."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from workbench.experiment import Experiment
from workbench.panel import redefined_classes

NET = """
from torch import nn

class Part(nn.Module):
    scale = {scale}

    def forward(self, x):
        return x * self.scale

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.last = Part(), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.part(x){then})
"""


def test_it_is_noted_while_the_old_one_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)

    def cell(code: str) -> list[str]:
        exec(code, main.__dict__)
        redefined_classes.check()
        return [note for note in exp.notes if "redefined by a cell" in note]

    exec(NET.format(scale=1, then=""), main.__dict__)
    data = torch.randn(64, 4), torch.arange(64) % 2
    exp = Experiment(main.Net(), data, batch_size=16, runs=tmp_path, name="run")
    assert cell(NET.format(scale=1, then=".relu()")) == [], "it has not begun"
    exec(NET.format(scale=1, then=""), main.__dict__)
    exp.step()
    exp.wait()
    assert exp.status == "paused"
    assert cell(NET.format(scale=1, then="")) == [], "the same once more"
    (note,) = cell(NET.format(scale=1, then=".relu()"))
    assert note.startswith("Net was redefined by a cell; run still trains with the old code.")
    assert exp.message == f"step 1: {note}"
    (note,) = cell(NET.format(scale=2, then=".relu()"))
    assert note.startswith("Net and Part were redefined by a cell; ")
    exp.model = main.Net()
    assert cell("") == []
    cell(NET.format(scale=2, then=""))
    exp.close()
    redefined_classes.check()
