# ruff: noqa: D102, D103 - a script that makes records to look at, not a library
"""Compares real trainings to look at the comparison with: modes, backbones, one cut short, none.

Usage: python compare_records.py OUT_FOLDER
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import workbench as wb


class Perceptron(nn.Module):
    """Two layers, and a width to choose."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(64, width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.relu(self.inner(x)))


def _experiment(name: str = "compared", width: int = 256) -> wb.Experiment:
    torch.manual_seed(0)
    data = torch.randn(512, 64), torch.randint(0, 10, (512,))
    val = torch.randn(128, 64), torch.randint(0, 10, (128,))
    return wb.Experiment(Perceptron(width), data, val=val, batch_size=64, name=name)


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    experiment = _experiment()
    arms = ["fp32", "bf16", "compile", "attention:cudnn", "checkpoint"]
    modes = wb.compare(experiment, arms, show_progress=False)
    backbones = {name: _experiment(name, width) for name, width in (("narrow", 64), ("wide", 2048))}
    records = {
        "modes": modes.record,
        "backbones": wb.compare(backbones, ["fp32", "bf16"], show_progress=False).record,
        "few": wb.compare(experiment, arms[:2], rounds=2, show_progress=False).record,
        "cancelled": replace(modes.record, cancelled=True),
    }
    for name, record in records.items():
        (out / f"{name}.wb").write_bytes(record.to_bytes())


if __name__ == "__main__":
    main()
