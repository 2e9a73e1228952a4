"""Small models, and captures of them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.unit.graph import diff_models


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, 2)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)) + self.skip(x))


class EarlyExit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block1 = Block(3, 8)
        self.block2 = Block(8, 16)
        self.aux = nn.Linear(8, 10)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.block1(x)
        early = self.aux(x.mean((2, 3)))
        return self.head(self.block2(x).mean((2, 3))), early


@pytest.fixture
def early_exit():
    return EarlyExit()


@pytest.fixture
def record(early_exit):
    """A traced capture of a branching network."""
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    with wb.graph(early_exit):
        late, early = early_exit(x)
        loss = F.cross_entropy(late, y) + 0.3 * F.cross_entropy(early, y)
    return wb.graph(loss).record


@pytest.fixture
def classifier():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.fixture
def batch():
    return torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])


@pytest.fixture
def images():
    return torch.randn(4, 3, 16, 16)


@pytest.fixture
def both_exits(images):
    torch.manual_seed(0)
    model = diff_models.EarlyExit()
    late = diff_models.capture(model, images)
    model.early = True
    return late, diff_models.capture(model, images)
