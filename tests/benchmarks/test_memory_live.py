"""What memory while training costs: the scalars of a run and their way to the panel's strip.

A run is a stretch of the same training with and without, in turns, in one process. On a machine
that others use the ratio's own spread is larger than what is to be shown, so the parts are timed by
themselves as well: a sample is taken at most ten times a second, whatever a step takes, and so its
cost is a share of the time. Of a step that is longer than a tenth of a second it is less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.benchmarks.loops import data, mlp
from tests.benchmarks.table import compare, measure_interleaved, median, versions
from workbench.experiment import Experiment
from workbench.experiment.measures import PER_SECOND
from workbench.experiment.scalars import ScalarLog
from workbench.metrics import memory
from workbench.panel import curves
from workbench.panel.channel import Client

ROUNDS, SAMPLES = 15, 200
SHARE = 0.01
"""Of the time, all parts together."""
NOISE = 1.10
"""At most the ratio of whole runs, which is printed with its spread: the parts decide."""


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def images() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(256, 3, 32, 32), torch.arange(256) % 10


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], int]] = {
    "tiny MLP": (mlp, data, 1500),
    "CNN": (cnn, images, 60),
}


@pytest.mark.benchmark
@pytest.mark.parametrize("case", list(CASES))
def test_a_run_with_its_memory_logged_takes_as_long_as_one_without(
    case: str, tmp_path: Path
) -> None:
    model, batches, steps = CASES[case]
    # one training, so that both find the same tensors at the same addresses
    exp = Experiment(
        model(), batches(), batch_size=8, runs=tmp_path, device="cpu", optimizer="SGD", lr=0.01
    )
    exp.run(steps=steps, wait=True)

    def stretch(*, logged: bool) -> float:
        end = memory.attach(exp) if logged else None
        start = time.process_time()  # of all threads: others on this machine do not count
        exp.run(steps=steps, wait=True)
        spent = time.process_time() - start
        if end is not None:
            end()
        return spent / steps * 1e6

    contenders = {
        "without": partial(stretch, logged=False),
        "with memory": partial(stretch, logged=True),
    }
    results = measure_interleaved(contenders, ROUNDS)
    title = f"One step of a {case}, processor time, batch 8"
    print("\n" + compare(title, "µs", results, baseline="without"))
    num_samples = len(exp.run(steps=1, wait=True).metrics["memory/resident"]["step"])
    print(f"{num_samples / ROUNDS:.1f} samples a stretch of {steps:,} steps; {versions('torch')}")
    exp.close()
    assert median(results["with memory"]) <= NOISE * median(results["without"])


@pytest.mark.benchmark
def test_all_parts_of_a_sample_take_less_than_a_hundredth_of_the_time(tmp_path: Path) -> None:
    exp = Experiment(mlp(), data(), runs=tmp_path, device="cpu")
    log, client = ScalarLog(), Client("bench", lambda *_: None)

    def timed(action: Callable[[int], object]) -> Callable[[], float]:
        def run() -> float:
            start = time.perf_counter()
            for step in range(SAMPLES):
                action(step)
            return (time.perf_counter() - start) / SAMPLES * 1e6

        return run

    def add(step: int) -> None:
        for name in ("memory/resident", "memory/resident_peak"):
            log.add(name, step, 1.0)

    def send(step: int) -> None:
        for name in ("memory/resident", "memory/resident_peak"):
            exp.scalars.add(name, step, 1.0)
        exp.scalars.flush()
        curves.update(client, exp)

    parts = {
        "read": timed(lambda _: memory.of_process()),
        "add": timed(add),
        "flush and send to one panel": timed(send),
    }
    results = measure_interleaved(parts, ROUNDS)
    print("\n" + compare("One sample of memory", "µs", results, baseline="read"))
    share = sum(median(found) for found in results.values()) * PER_SECOND / 1e6
    print(f"{PER_SECOND} a second: {100 * share:.3f} % of the time")
    print(versions("torch"))
    exp.close()
    assert share <= SHARE
