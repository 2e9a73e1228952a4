"""Small real models the mode tests share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as sdpa


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, width * 2)
        self.down = nn.Linear(width * 2, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(x)))


class EarlyExit(nn.Module):
    """Repeated blocks in a Sequential, and a branch that depends on the data."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.early = nn.Linear(width, classes)
        self.body = nn.Sequential(*(Residual(width) for _ in range(3)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.stem(x)
        early = self.early(h)
        if early.softmax(1).amax(1).min() > 0.9:
            return early
        return self.head(self.body(h))


class Attends(nn.Module):
    """Its own attention, called through an alias."""

    def __init__(self, width: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, width * 3)
        self.head = nn.Linear(width, 4)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
        return self.head(sdpa(q, k, v, dropout_p=self.dropout).squeeze(1).mean(1))


@pytest.fixture
def cpu() -> torch.device:
    return torch.device("cpu")


@pytest.fixture
def make_early_exit() -> Callable[..., nn.Module]:
    return EarlyExit


@pytest.fixture
def make_attends() -> Callable[..., nn.Module]:
    return Attends


@pytest.fixture
def make_residual() -> Callable[..., nn.Module]:
    return Residual
