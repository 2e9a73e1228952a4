"""A training that is killed and started again: a program that goes on where its run directory is.

    python -m tests.integration.resumed_run FOLDER KIND RESULT

It prints a line after every step and before every validation, so that whoever kills it knows where
it was, and writes losses, validation and weights to RESULT when the run has reached its end.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import workbench as wb
from workbench.experiment.report.events import Event

SAMPLES, EPOCHS, BATCH = 96, 4, 8
STEPS = SAMPLES // BATCH * EPOCHS


class Augmented(Dataset[Any]):
    """Draws from all three generators for every sample."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = 0.1 * torch.randn(6) + 0.1 * np.random.randn() + 0.1 * random.random()
        return torch.sin(torch.arange(6.0) * index) + noise.float(), index % 3


class Net(nn.Module):
    """Dropout, batch norm, and a moving average in a plain attribute that the forward reads."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 16), nn.BatchNorm1d(16)
        self.last = nn.Linear(16, 3)
        self.scale, self.calls = 1.0, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = nn.functional.dropout(self.norm(self.first(x)).relu(), 0.2, self.training)
        if self.training:
            self.calls += 1
            self.scale = 0.9 * self.scale + 0.1 * float(h.detach().mean())
        return self.last(h * self.scale)


def arrays() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(SAMPLES, 6), torch.arange(SAMPLES) % 3


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=STEPS)


def decays(optimizer: torch.optim.Optimizer) -> Any:
    """A schedule that no plain value can hold: its function is pickled."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.98**step)


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"train": arrays()},
    "augmented": lambda: {"train": Augmented()},
    "two workers": lambda: {"train": DataLoader(Augmented(), BATCH, num_workers=2)},
    "the loader's order": lambda: {
        "train": DataLoader(Augmented(), BATCH, shuffle=True), "order": "loader",
    },
    "fp16, one cycle": lambda: {
        "train": arrays(), "modes": "fp16", "scheduler": one_cycle, "schedule_every": "step",
    },
    "a schedule of one's own": lambda: {
        "train": arrays(), "optimizer": "sgd", "lr": 0.1, "scheduler": decays,
        "schedule_every": "step",
    },
}  # fmt: skip


def experiment(folder: Path, kind: str) -> wb.Experiment:
    """As the cells of a notebook would create it."""
    torch.manual_seed(0)
    net = Net()
    np.random.seed(3)
    random.seed(4)
    options = {"optimizer": "adamw", "batch_size": BATCH, **KINDS[kind]()}
    return wb.Experiment(
        net, val=arrays(), runs=folder, name="run", device="cpu", checkpoint_every=5, **options
    )


def result(exp: wb.Experiment) -> dict[str, Any]:
    metrics = exp.scalars.history()
    names = ("train/loss", "train/learning_rate", "train/accuracy", "val/loss", "val/accuracy")
    return {
        "metrics": {name: metrics[name] for name in names},
        "model": exp.model.state_dict(),
        "optimizer": exp.optimizer.state_dict(),
        "plain": (exp.model.scale, exp.model.calls),
        "next": (torch.rand(2), np.random.rand(2).tolist(), random.random()),
    }


def main(folder: Path, kind: str, target: Path) -> None:
    exp = experiment(folder, kind)
    run = folder / "run"
    if exp.path != run:
        exp.resume_from(run)
    validate, writer = exp._training.validate, exp._runner._checkpoints

    def stepped(event: Event) -> None:
        if event.step == 6:
            writer.join()  # steps of this size are over before the first one is written
        print("step", event.step, flush=True)

    def announced(*given: Any) -> Any:
        print("validates", flush=True)
        return validate(*given)

    exp._training.validate = announced
    exp.subscribe(stepped, every_step=True)
    handle = exp.run(epochs=EPOCHS) if exp.step_count == 0 else exp.resume()
    handle.wait()
    exp._training.random.restore()
    found = result(exp)
    exp.close()
    torch.save(found, target)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
