# ruff: noqa: D102, D103, S101 - a script that makes pictures to look at, not a library
"""Trains small models for a moment and saves their gradient flow, to look at the strip with.

Usage: python flow_records.py OUT_FOLDER
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import graph_models as models
import torch
from torch import nn

from workbench.experiment import Experiment, RunError
from workbench.experiment.loop import measures
from workbench.gradient_flow.log import gradient_flow
from workbench.graph import GraphProbe
from workbench.metrics.gradient_flow_picture import draw_flow
from workbench.records import GradientFlow, GraphRecord


class EarlyExitCNN(nn.Module):
    """Leaves after the second block when it is sure enough."""

    def __init__(self) -> None:
        super().__init__()
        self.block1 = models.Block(1, 16, 2)
        self.block2 = models.Block(16, 32, 2)
        self.aux = nn.Linear(32, 10)
        self.block3 = models.Block(32, 64, 2)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block2(self.block1(x))
        early = self.aux(x.mean((2, 3)))
        if (6 * early[0]).softmax(0).amax() > 0.5:  # as sure of the first image as this
            return early
        return early + self.head(self.block3(x).mean((2, 3)))


class Spiky(nn.Module):
    """Its square root meets a zero once in a while."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 10)
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        h = self.first(x.flatten(1)).relu()
        return self.last((h * 0).sqrt() if self.steps == 30 else h)


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    return x, torch.tensor(labels)


def trained(model: nn.Module, name: str, folder: Path, steps: int, captured: int = 0) -> Experiment:
    exp = Experiment(model, digits(), name=name, runs=folder, device="cpu", seed=1)
    if captured:
        exp.run(steps=captured - 1, wait=True)
        exp.capture(GraphProbe())
    exp.run(steps=steps - exp.step_count)
    with suppress(RunError):
        exp.wait()
    return exp


def save(exp: Experiment, folder: Path, file: str, graph: str = "") -> None:
    found: GradientFlow = gradient_flow(exp)
    found.save(folder / f"{file}.wb")
    (folder / f"{file}.png").write_bytes(draw_flow(found)[0])
    if graph:
        newest = next(info for info in exp.captures.infos() if info.kind == "graph")
        record = exp.captures.get(newest.id)
        assert isinstance(record, GraphRecord)
        record.save(folder / f"{graph}.wb")
    exp.close()


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    measures.PER_SECOND = float("inf")  # every step: a demo has no hours
    with tempfile.TemporaryDirectory() as runs:
        torch.manual_seed(0)
        exp = trained(EarlyExitCNN(), "early exit", Path(runs), 64, 42)
        save(exp, folder, "flow_exit", "flow_graph")
        exp = trained(EarlyExitCNN(), "early exit, long", Path(runs), 200)
        exp.model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        exp.run(steps=60, wait=True)
        save(exp, folder, "flow_long")
        exp = trained(Spiky(), "square root", Path(runs), 60)
        assert exp.failure is not None
        exp.resume_from_failure()
        exp.wait()
        save(exp, folder, "flow_nan")
        deep = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 32),
            *[nn.Sequential(nn.Tanh(), nn.Linear(32, 32)) for _ in range(40)],
            nn.Linear(32, 10),
        )
        save(
            trained(deep, "vanishing", Path(runs), 120, 60), folder, "flow_deep", "flow_deep_graph"
        )


if __name__ == "__main__":
    main()
