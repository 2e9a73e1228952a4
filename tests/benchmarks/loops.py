"""The same training of a tiny MLP through every contender, for a number of epochs.

All see the same batches of 8, cut from tensors in memory by a fresh permutation per epoch, the same
model and the same SGD. What is left of the difference is each one's fixed cost per step.
"""

from __future__ import annotations

import gc
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from workbench.experiment import Experiment
from workbench.metrics import attach

SAMPLES, FEATURES, CLASSES, BATCH = 8192, 32, 10, 8
STEPS_PER_EPOCH = SAMPLES // BATCH
SHORT, LONG = 1, 3
"""Epochs. The cost of a step is the difference of the two, so that starting costs nothing."""

Train = Callable[[int], None]
"""Trains for so many epochs, from scratch."""


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


@dataclass(frozen=True)
class StepCost:
    """Microseconds per step."""

    wall_us: float
    cpu_us: float
    """Of all threads of this process: a busy machine does not change it much."""


def step_cost(train: Train) -> StepCost:
    """What one more step costs: a long training minus a short one."""
    gc.collect()
    wall, cpu = zip(*(_times(train, epochs) for epochs in (SHORT, LONG)), strict=True)
    steps = (LONG - SHORT) * STEPS_PER_EPOCH
    return StepCost((wall[1] - wall[0]) / steps * 1e6, (cpu[1] - cpu[0]) / steps * 1e6)


def _times(train: Train, epochs: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    train(epochs)
    return time.perf_counter() - wall, time.process_time() - cpu


def _loop(model: Any, optimizer: Any, backward: Callable[[torch.Tensor], Any], epochs: int) -> None:
    batches = Batches(*data())
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            backward(loss)
            optimizer.step()


def plain(epochs: int) -> None:
    model = mlp()
    _loop(model, sgd(model), torch.Tensor.backward, epochs)


def fabric(epochs: int) -> None:
    from lightning.fabric import Fabric

    engine = Fabric(accelerator="cpu", devices=1)
    model = mlp()
    model, optimizer = engine.setup(model, sgd(model))
    _loop(model, optimizer, engine.backward, epochs)


def accelerate(epochs: int) -> None:
    from accelerate import Accelerator

    engine = Accelerator(cpu=True)
    model = mlp()
    model, optimizer = engine.prepare(model, sgd(model))
    _loop(model, optimizer, engine.backward, epochs)


def lightning(epochs: int, *, log: bool) -> None:
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
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), Batches(*data()))


def workbench(epochs: int, *, runs: Path, stream: bool) -> None:
    """An experiment as a person makes it; ``stream`` writes TensorBoard files meanwhile."""
    model = mlp()
    experiment = Experiment(
        model, data(), optimizer=sgd(model), batch_size=BATCH, runs=runs, device="cpu"
    )
    detach = attach(experiment) if stream else None
    experiment.run(epochs=epochs, wait=True)
    if detach is not None:
        detach()
    experiment.close()
