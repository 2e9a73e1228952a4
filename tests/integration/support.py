"""Small data and models that the runner's tests share."""

from __future__ import annotations

import threading

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from tests.waiting import DEADLINE_S
from workbench.experiment import Experiment
from workbench.experiment.report.events import Event
from workbench.records import MemoryChart


def batchless() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(160, 6, generator=generator), torch.arange(160) % 3


def net(classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, classes))


def chart(step: int) -> MemoryChart:
    """One without a point: what a probe of a test gives back."""
    return MemoryChart(
        step=step,
        device="cpu",
        basis="",
        num_points=0,
        bytes=np.empty(0, dtype=np.float32),
        phases=(),
        peak_point=0,
        peak_bytes=0,
        peak_label="",
        at_peak=(),
        reserved_bytes=-1,
    )


def reach(experiment: Experiment, step: int, timeout: float = DEADLINE_S) -> None:
    """Return once it has done so many steps."""
    done = threading.Event()

    def look(event: Event) -> None:
        if event.step >= step:
            done.set()

    unsubscribe = experiment.subscribe(look, every_step=True)
    try:
        assert experiment.step_count >= step or done.wait(timeout), f"it is {experiment.status}"
    finally:
        unsubscribe()


def our_threads() -> list[str]:
    """Without the hub's, which ends some time after a panel of another test."""
    names = (thread.name for thread in threading.enumerate())
    return [name for name in names if name.startswith("workbench-") and name != "workbench-hub"]


def weights(experiment: Experiment) -> list[torch.Tensor]:
    return [p.detach().clone() for p in experiment.model.parameters()]


def same(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


class Drawn(Dataset[tuple[torch.Tensor, int]]):
    """Samples that are drawn as they are fetched."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(6), index % 3


class Rows(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self) -> None:
        self.bad = True

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.bad and index == 40:
            raise OSError("sample 40 cannot be read")
        return torch.full((6,), index / 64), index % 3
