"""Workers of a `DataLoader` that are forked while another experiment trains."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.integration.support import reach
from tests.waiting import DEADLINE_S, wait_until
from workbench.experiment import Experiment
from workbench.processes import computing

pytestmark = pytest.mark.skipif(
    torch.multiprocessing.get_start_method() != "fork", reason="workers are not forked here"
)
LOCK = threading.Lock()
"""Stands for every lock inside of torch: taken by whoever computes, needed by whoever loads."""


class Locked(nn.Linear):
    """Holds the lock for most of its step."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with LOCK:
            return torch.stack([nn.Linear.forward(self, x) for _ in range(200)]).mean(0)


class Samples(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        # what is locked for good here was locked by a thread that this process has not
        assert LOCK.acquire(timeout=DEADLINE_S / 9)
        LOCK.release()
        with computing:  # nor is a step waited for that is under way in another process
            pass
        return torch.full((8,), float(index)), index % 2


def test_they_are_forked_between_its_steps(tmp_path: Path) -> None:
    data = torch.randn(64, 8), torch.arange(64) % 2
    loader = DataLoader(Samples(), 4, num_workers=2)
    beside = Experiment(Locked(8, 2), data, runs=tmp_path, device="cpu", name="beside")
    exp = Experiment(nn.Linear(8, 2), loader, val=loader, runs=tmp_path, device="cpu")
    beside.run(epochs=1_000_000)
    try:
        reach(beside, 3)
        exp.run(epochs=5, wait=True)
        assert exp.failure is None, exp.failure
        before = beside.step_count
        exp.evaluate(loader)
        wait_until(lambda: beside.step_count > before, "a step after a fork")
    finally:
        exp.close()
        beside.close()
