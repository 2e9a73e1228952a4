"""An experiment that does what `plain_loop` does, and what it has computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.unit.experiment.plain_loop import BATCH, data
from workbench.experiment import Experiment


def sgd(parameters: Any) -> torch.optim.Optimizer:
    """With momentum: what one step gets wrong shows in all later ones."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def experiment(folder: Path, model: nn.Module, train: Any = None, **options: Any) -> Experiment:
    """Trains on `data` in its order, unless another set or other settings are given."""
    settings = {"optimizer": sgd, "batch_size": BATCH, "shuffle": False, "device": "cpu"}
    return Experiment(
        model, data() if train is None else train, runs=folder, **(settings | options)
    )


def losses(exp: Experiment) -> list[float]:
    """Of every training step so far."""
    exp.scalars.flush()
    return exp.scalars.since("train/loss", 0)[1].tolist()
