"""A small loop of one's own, for the tests of `workbench.Modes`."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import workbench as wb

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(16) % 4


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def sgd(*models: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)


def overflow(model: nn.Module) -> None:
    next(model.parameters()).grad.fill_(float("inf"))


def step(modes: wb.Modes, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    optimizer.zero_grad()
    with modes.forward():
        loss = F.cross_entropy(model(X), Y)
    with modes.update(loss, optimizer):
        pass
    return loss.item()


def scale(modes: wb.Modes) -> float:
    return modes.state_dict()["precision"]["scaler"]["scale"]
