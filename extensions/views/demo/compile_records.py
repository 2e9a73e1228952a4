# ruff: noqa: D102, D103 - a script that makes records to look at, not a library
"""Records real compilations to look at the compile report with, and one as large as they get.

Usage: python compile_records.py OUT_FOLDER
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

import workbench as wb
from workbench.records import CompileRecord


class Block(nn.Module):
    """Asks its data, which no graph can hold."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = nn.functional.gelu(self.inner(self.norm(x)))
        if h.sum() > 0:
            h = torch.sigmoid(h) * h
        return x + self.outer(h)


class Net(nn.Module):
    """Equal blocks between two layers."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.body = nn.Sequential(*(Block(32) for _ in range(depth)))
        self.head = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(torch.relu(self.stem(x))))


def _experiment(name: str) -> wb.Experiment:
    torch.manual_seed(0)
    data = torch.randn(200, 16), torch.randint(0, 3, (200,))
    return wb.Experiment(Net(), data, batch_size=64, epochs=2, name=name)


def broken() -> CompileRecord:
    """Blocks that break, and a last batch of another size."""
    experiment = _experiment("broken")
    experiment.modes = "compile"
    experiment.run(steps=5, wait=True)
    experiment.close()
    return wb.compile_report(experiment).record


def nothing() -> CompileRecord:
    """A training without compile."""
    experiment = _experiment("plain")
    experiment.run(steps=2, wait=True)
    experiment.close()
    return wb.compile_report(experiment).record


def failed() -> CompileRecord:
    """A block that breaks although it must be one graph."""
    with wb.compile_report() as report, contextlib.suppress(Exception):
        torch.compile(Block(16), fullgraph=True)(torch.ones(4, 16))
    return report.record


def large(small: CompileRecord, times: int) -> CompileRecord:
    """``small`` so many times over."""
    rows, regions = len(small.compilation_region), len(small.regions)
    columns = {
        name: np.tile(value, times)
        for name, value in vars(small).items()
        if name.startswith("compilation_")
    }
    columns["compilation_region"] += np.repeat(np.arange(times, dtype=np.int32) * regions, rows)
    turns = range(times)
    return replace(
        small,
        title="large",
        regions=tuple(
            replace(one, label=f"{one.label} {turn}") for turn in turns for one in small.regions
        ),
        breaks=tuple(
            replace(one, region=one.region + turn * regions)
            for turn in turns
            for one in small.breaks
        ),
        recompiles=tuple(
            replace(one, compilation=one.compilation + turn * rows)
            for turn in turns
            for one in small.recompiles
        ),
        kernels=tuple(
            replace(one, compilation=one.compilation + turn * rows, name=f"{one.name}_{turn}")
            for turn in turns
            for one in small.kernels
        ),
        **columns,
    )


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    small = broken()
    records = {
        "broken": small,
        "nothing": nothing(),
        "failed": failed(),
        "large": large(small, 150),
    }
    for name, record in records.items():
        (out / f"{name}.wb").write_bytes(record.to_bytes())


if __name__ == "__main__":
    main()
