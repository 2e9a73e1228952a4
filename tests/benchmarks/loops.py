"""The same training of a tiny MLP through every contender, for a number of epochs.

All see the same batches of 8, cut from tensors in memory by a fresh permutation per epoch, the same
model and the same SGD. What is left of the difference is each one's fixed cost per step.
"""

from __future__ import annotations

import gc
import itertools
import logging
import statistics
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
from workbench.experiment.report.events import EpochDone
from workbench.metrics import attach

SAMPLES, FEATURES, CLASSES, BATCH = 4096, 32, 10, 8
STEPS_PER_EPOCH = SAMPLES // BATCH
EPOCHS = 6


class Clock:
    """Wall and processor time, read once an epoch: starting and ending a training is left out."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, float]] = []

    def mark(self) -> None:
        """An epoch begins."""
        self._marks.append((time.perf_counter(), time.process_time()))

    def step_cost(self) -> StepCost:
        """Of the median epoch, without the first, in which caches are cold."""
        wall, cpu = (
            statistics.median(b - a for a, b in itertools.pairwise(times[1:]))
            for times in zip(*self._marks, strict=True)
        )
        return StepCost(wall / STEPS_PER_EPOCH * 1e6, cpu / STEPS_PER_EPOCH * 1e6)


Train = Callable[[Clock], None]
"""Trains for `EPOCHS` epochs, from scratch."""


@dataclass(frozen=True)
class StepCost:
    """Microseconds per step."""

    wall_us: float
    cpu_us: float
    """Of all threads of this process: a busy machine does not change it much."""


def mean_of(a: StepCost, b: StepCost) -> StepCost:
    return StepCost((a.wall_us + b.wall_us) / 2, (a.cpu_us + b.cpu_us) / 2)


def step_cost(train: Train) -> StepCost:
    """What one step of a training costs."""
    gc.collect()
    clock = Clock()
    train(clock)
    return clock.step_cost()


class Batches:
    """An iterable of batches without the cost of a `DataLoader`."""

    def __init__(self, clock: Clock, x: torch.Tensor, y: torch.Tensor) -> None:
        self.clock, self.x, self.y = clock, x, y

    def __len__(self) -> int:
        return len(self.x) // BATCH

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        self.clock.mark()
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


def _loop(model: Any, optimizer: Any, backward: Callable[[torch.Tensor], Any], at: Clock) -> None:
    batches = Batches(at, *data())
    for _ in range(EPOCHS):
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            backward(loss)
            optimizer.step()


def plain(clock: Clock) -> None:
    model = mlp()
    _loop(model, sgd(model), torch.Tensor.backward, clock)


def fabric(clock: Clock) -> None:
    from lightning.fabric import Fabric

    engine = Fabric(accelerator="cpu", devices=1)
    model = mlp()
    model, optimizer = engine.setup(model, sgd(model))
    _loop(model, optimizer, engine.backward, clock)


def accelerate(clock: Clock) -> None:
    from accelerate import Accelerator

    engine = Accelerator(cpu=True)
    model = mlp()
    model, optimizer = engine.prepare(model, sgd(model))
    _loop(model, optimizer, engine.backward, clock)


def lightning(clock: Clock, *, log: bool) -> None:
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
            max_epochs=EPOCHS,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), Batches(clock, *data()))


def workbench(clock: Clock, *, runs: Path, stream: bool) -> None:
    """An experiment as a person makes it; ``stream`` writes TensorBoard files meanwhile."""
    model = mlp()
    experiment = Experiment(
        model, data(), optimizer=sgd(model), batch_size=BATCH, runs=runs, device="cpu"
    )
    detach = attach(experiment) if stream else None
    experiment.subscribe(lambda event: clock.mark() if isinstance(event, EpochDone) else None)
    experiment.run(epochs=EPOCHS, wait=True)
    if detach is not None:
        detach()
    experiment.close()
