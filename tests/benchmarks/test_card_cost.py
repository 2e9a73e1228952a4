"""What a simulated card costs while it refuses nothing, and that without one a step costs nothing.

On a card every operation is recorded and asked of the simulated allocator, so the cost is one of
operations, not of their size: a tiny step pays most. A card that was set and ended leaves nothing
in a step but two comparisons with None.
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
from tests.benchmarks.table import (
    compare,
    measure_interleaved,
    median,
    ratio_line,
    ratios,
    versions,
)
from tests.models.vit import ViT
from workbench.panel.assembly import Experiment

ROUNDS = 9
NOISE = 1.10
"""At most the ratio without a card; on a busy machine the spread is larger than what is shown."""


def cnn() -> nn.Module:
    stage = [nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), *stage, nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def vit() -> nn.Module:
    return ViT(side=32, patch=4, width=128, depth=4, heads=4, classes=10)


def images() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(256, 3, 32, 32), torch.arange(256) % 10


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], int, int, float]] = {
    "tiny MLP": (mlp, data, 8, 200, 12.0),
    "CNN": (cnn, images, 64, 8, 1.5),
    "transformer": (vit, images, 64, 5, 1.6),
}
"""Model, data, batch, steps of a stretch, and at most the ratio on a card."""


@pytest.mark.benchmark
@pytest.mark.parametrize("case", list(CASES))
def test_a_card_that_refuses_nothing_against_none(
    case: str, tmp_path: Path, one_thread: None
) -> None:
    model, batches, size, steps, most = CASES[case]
    options: dict[str, Any] = {"device": "cpu", "optimizer": "Adam", "lr": 1e-4}
    plain, played = (
        Experiment(model(), batches(), batch_size=size, runs=tmp_path, **options) for _ in range(2)
    )
    played.card = "80 GiB"
    for exp in (plain, played):
        exp.run(steps=steps, wait=True)

    def stretch(exp: Experiment, card: str | None) -> float:
        exp.card = card
        exp.run(steps=1, wait=True)  # weights and moments are put on a new card here
        start = time.process_time()  # of all threads: others on this machine do not count
        exp.run(steps=steps, wait=True)
        return (time.process_time() - start) / steps * 1e3

    contenders = {
        "never set": partial(stretch, plain, None),
        "set and ended": partial(stretch, played, None),
        "on a card": partial(stretch, played, "80 GiB"),
    }
    results = measure_interleaved(contenders, ROUNDS)
    title = f"One step of a {case}, processor time, batch {size}"
    print("\n" + compare(title, "ms", results, baseline="never set"))
    print(versions("torch"))
    for exp in (plain, played):
        exp.close()
    ended = ratios(results["set and ended"], results["never set"])
    played_on = ratios(results["on a card"], results["never set"])
    print(ratio_line("set and ended over never set", ended, NOISE))
    print(ratio_line("on a card over never set", played_on, most))
    assert median(ended) <= NOISE
    assert median(played_on) <= most
