"""What memory while training costs: the scalars of a run and their way to the panel's strip.

A run is a stretch of the same training with and without, in turns, in one process. On a machine
that others use the ratio's own spread is larger than what is to be shown, so the parts are timed by
themselves as well, beside a plain step of a tiny MLP. A sample is taken at most ten times a second,
whatever a step takes: what costs no more than one such step is a small share of the time.
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
from torch.nn.functional import cross_entropy

from tests.benchmarks.loops import BATCH, data, mlp, sgd
from tests.benchmarks.table import (
    compare,
    measure_interleaved,
    median,
    ratio_line,
    ratios,
    versions,
)
from workbench.experiment import Experiment
from workbench.experiment.loop.scalars import ScalarLog
from workbench.metrics import memory
from workbench.panel.channel import curves
from workbench.panel.channel.channel import Client

ROUNDS, SAMPLES = 15, 200
STEP = "a step of a tiny MLP"
SAMPLE = 0.75
"""Times a plain step of a tiny MLP: all parts of a sample together."""
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
    case: str, tmp_path: Path, one_thread: None
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
    over = ratios(results["with memory"], results["without"])
    print(ratio_line("with memory over without", over, NOISE))
    assert median(over) <= NOISE


@pytest.mark.benchmark
def test_a_sample_costs_less_than_a_step_of_a_tiny_mlp(tmp_path: Path, one_thread: None) -> None:
    exp = Experiment(mlp(), data(), runs=tmp_path, device="cpu")
    log, client = ScalarLog(), Client("bench", lambda *_: None)

    def timed(action: Callable[[int], object]) -> Callable[[], float]:
        def run() -> float:
            start = time.process_time()
            for step in range(SAMPLES):
                action(step)
            return (time.process_time() - start) / SAMPLES * 1e6

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
        STEP: timed(plain_step()),
        "read": timed(lambda _: memory.of_process()),
        "add": timed(add),
        "flush and send to one panel": timed(send),
    }
    results = measure_interleaved(parts, ROUNDS)
    print("\n" + compare("One sample of memory, processor time", "µs", results, baseline=STEP))
    step = results.pop(STEP)
    whole = [sum(of_round) for of_round in zip(*results.values(), strict=True)]
    over = ratios(whole, step)
    print(ratio_line(f"all parts over {STEP}", over, SAMPLE), versions("torch"))
    exp.close()
    assert median(over) <= SAMPLE


def plain_step() -> Callable[[int], None]:
    model, (x, y) = mlp(), data()
    optimizer = sgd(model)

    def step(_: int) -> None:
        optimizer.zero_grad()
        cross_entropy(model(x[:BATCH]), y[:BATCH]).backward()
        optimizer.step()

    return step
