"""Experiments that run out of memory on a simulated GPU, and what is asked of them then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.models.recurrent import LSTMLoop
from tests.models.vit import ViT
from workbench.allocator.simulator.gpus import CONTEXT_BYTES
from workbench.experiment import Experiment
from workbench.records import MemoryRecord

MIB = 2**20
BATCH = 48
COUNT = 2 * BATCH
"""Samples of an epoch."""


class Stage(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 1), nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(torch.relu(self.norm(self.conv(x))))


class CNN(nn.Module):
    """Running statistics and dropout: what a trial must put back is in it.

    Its convolutions look at single pixels: their activations are large, and soon computed.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 1)
        self.stages = nn.Sequential(*(Stage(width) for _ in range(4)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


def images(count: int = COUNT) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 3, 24, 24), torch.arange(count) % 10


def sequences(count: int = COUNT) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 24, 16), torch.arange(count) % 10


def cnn() -> tuple[nn.Module, Any]:
    return CNN(), images()


def transformer() -> tuple[nn.Module, Any]:
    return ViT(side=24, patch=6, width=64, depth=4, heads=4, classes=10), images()


def lstm() -> tuple[nn.Module, Any]:
    return LSTMLoop(hidden=96), sequences()


MODELS = {"CNN": cnn, "transformer": transformer, "LSTM": lstm}


def experiment(folder: Path, kind: str, **options: Any) -> Experiment:
    torch.manual_seed(0)
    model, data = MODELS[kind]()
    val = tuple(part[:BATCH] for part in data)
    chosen = {"val": val, "batch_size": BATCH, "device": "cpu", "runs": folder, **options}
    return Experiment(model, data, **chosen)


def refused(exp: Experiment, usable: int) -> MemoryRecord:
    """Run it on a GPU with so many bytes to give, until it has failed and remedies were tried."""
    exp.card = CONTEXT_BYTES + usable
    with pytest.raises(torch.OutOfMemoryError):
        exp.run(epochs=2, wait=True)
    return record_of_failure(exp)


def record_of_failure(exp: Experiment) -> MemoryRecord:
    """The record that is kept of the failed step."""
    assert exp.failure is not None
    record = exp.captures.get(exp.failure.capture)
    assert isinstance(record, MemoryRecord)
    return record
