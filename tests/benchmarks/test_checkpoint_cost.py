"""What checkpoints cost a training: throughput with one per so many steps over that without any.

pytest -s -m benchmark tests/benchmarks/test_checkpoint_cost.py
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from tests.benchmarks import absent
from tests.benchmarks.quiet import is_quiet
from tests.models.resnet import ResNet

pytestmark = pytest.mark.benchmark

STEPS, ROUNDS = 100, 4
"""Steps between two checkpoints, and pairs of them."""
MOST = 1.02
BATCH, SIDE = 8, 64


def experiment(runs: Path, every: int | None) -> wb.Experiment:
    torch.manual_seed(0)
    data: Any = torch.randn(4096, 3, SIDE, SIDE), torch.randint(0, 10, (4096,))
    return wb.Experiment(
        ResNet(classes=10), data, batch_size=BATCH, optimizer="sgd", lr=0.01, runs=runs,
        device="cpu", checkpoint_every=every,
    )  # fmt: skip


def seconds(exp: wb.Experiment) -> float:
    """Of `STEPS` steps in the middle of a run: its end, which waits for the disk, is left out."""
    begun = time.perf_counter()
    at: list[float] = []
    end = exp.on("step", lambda _event: at.append(time.perf_counter()))
    exp.run(steps=STEPS + 1, wait=True)
    end()
    assert begun < at[0]
    return at[-1] - at[0]


def test_one_per_hundred_steps(tmp_path: Path) -> None:
    """A step never waits for a disk: what is left is the copy, and the other thread's share."""
    plain, saved = experiment(tmp_path, None), experiment(tmp_path, STEPS)
    for exp in (plain, saved):
        exp.run(steps=3, wait=True)
    ratios: list[float] = []
    alone = is_quiet()
    for number in range(ROUNDS):
        pair = (plain, saved) if number % 2 else (saved, plain)
        took = {id(exp): seconds(exp) for exp in pair}
        ratios.append(took[id(saved)] / took[id(plain)])
        print(f"{number + 1}: {took[id(plain)]:.1f} s, {took[id(saved)]:.1f} s with checkpoints")
    alone = alone and is_quiet()
    found = len(list((saved.path / "checkpoints").iterdir()))
    for exp in (plain, saved):
        exp.close()
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    print(f"{middle:.3f} x ({low:.3f} .. {high:.3f}) over {ROUNDS} pairs, at most {MOST}")
    assert found >= 2
    if not alone:
        absent.note("a machine that nobody else uses", "the limit of what checkpoints cost")
        return
    assert low <= MOST
