"""The same training of a tiny MLP through every contender; each returns microseconds per step.

All see the same batches of 8, cut from tensors in memory by a fresh permutation per epoch, the same
model and the same SGD. What is left of the difference is each one's fixed cost per step.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from workbench.experiment import Experiment
from workbench.metrics import attach

SAMPLES, FEATURES, CLASSES, BATCH = 8192, 32, 10, 8
STEPS = 2 * SAMPLES // BATCH
"""Two epochs."""


class Batches:
    """An iterable of batches without the cost of a `DataLoader`."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x) // BATCH

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for rows in torch.randperm(len(self.x)).split(BATCH):
            yield self.x[rows], self.y[rows]


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, FEATURES, generator=generator)
    return x, torch.randint(0, CLASSES, (SAMPLES,), generator=generator)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def timed(train: Callable[[], None], steps: int = STEPS) -> float:
    start = time.perf_counter()
    train()
    return (time.perf_counter() - start) / steps * 1e6


def _loop(
    model: Any, optimizer: Any, batches: Any, backward: Callable[[torch.Tensor], Any]
) -> None:
    for _ in range(2):
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            backward(loss)
            optimizer.step()


def plain() -> float:
    model = mlp()
    optimizer = sgd(model)
    return timed(lambda: _loop(model, optimizer, Batches(*data()), torch.Tensor.backward))


def fabric() -> float:
    from lightning.fabric import Fabric

    engine = Fabric(accelerator="cpu", devices=1)
    model = mlp()
    model, optimizer = engine.setup(model, sgd(model))
    return timed(lambda: _loop(model, optimizer, Batches(*data()), engine.backward))


def accelerate() -> float:
    from accelerate import Accelerator

    engine = Accelerator(cpu=True)
    model = mlp()
    model, optimizer = engine.prepare(model, sgd(model))
    return timed(lambda: _loop(model, optimizer, Batches(*data()), engine.backward))


def lightning(*, log: bool) -> float:
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = mlp()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.model(batch[0]), batch[1])
            if log:
                self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return sgd(self)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = L.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        return timed(lambda: trainer.fit(Module(), Batches(*data())))


def workbench(runs: Path, *, stream: bool) -> float:
    """An experiment with its validation off; ``stream`` writes TensorBoard files meanwhile."""
    model = mlp()
    experiment = Experiment(
        model, data(), optimizer=sgd(model), batch_size=BATCH, runs=runs, device="cpu"
    )
    detach = attach(experiment) if stream else None
    try:
        return timed(lambda: experiment.run(epochs=2, wait=True))
    finally:
        if detach is not None:
            detach()
        experiment.close()
