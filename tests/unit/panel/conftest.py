from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.panel.assembly import Experiment


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[Experiment]:
    torch.manual_seed(0)
    x, y = torch.randn(256, 8), torch.randint(0, 3, (256,))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    runs = tmp_path / "runs"
    exp = Experiment(model, (x, y), val=(x, y), batch_size=32, name="unit", runs=runs)
    yield exp
    exp.close()  # else its writer, which waits for more while it is paused, is waited for
