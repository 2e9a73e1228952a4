from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.panel.assembly import Experiment


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    torch.manual_seed(0)
    x, y = torch.randn(256, 8), torch.randint(0, 3, (256,))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    return Experiment(model, (x, y), val=(x, y), batch_size=32, name="unit", runs=tmp_path / "runs")
