# ruff: noqa: N812, T201 - a script that makes pictures to look at, not a library
"""Diffs to look at: pairs of real captures, compared and written as record files.

Usage: python diff_records.py OUT_FOLDER [NAME ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import graph_models as models
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.records import GraphDiff, GraphRecord


class EarlyExitCNN(nn.Module):
    """A classifier that leaves early where it is sure; the late branch then never runs."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.block1 = models.Block(3, 32, 1)
        self.block2 = models.Block(32, 64, 2)
        self.aux = models.Head(64)
        self.block3 = models.Block(64, 128, 2)
        self.head = models.Head(128)
        self.temperature = nn.Parameter(torch.ones(()))
        self.threshold = threshold

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Logits of one exit or of both, for images (N, 3, 32, 32)."""
        h = self.block2(self.block1(x))
        early = self.aux(h)
        sure = early.softmax(-1).amax(-1).mean().item()
        if sure > self.threshold:
            return [early / self.temperature]
        return [early, self.head(self.block3(h))]


def _loss_of(outputs: list[torch.Tensor], y: torch.Tensor) -> torch.Tensor:
    if len(outputs) == 1:
        return F.cross_entropy(outputs[0], y) * 1.0
    early, late = outputs
    return F.cross_entropy(late, y) + F.cross_entropy(early, y) * 0.3


def early_exit() -> GraphDiff:
    """A step that takes both branches, and one that leaves early."""
    model = EarlyExitCNN(threshold=1.0)
    x, y = torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))

    def captured() -> GraphRecord:
        with wb.graph(model) as view:
            _loss_of(model(x), y).backward()
        model.zero_grad()
        return view.record

    late = captured()
    model.threshold = 0.0
    return wb.graph(late).diff(captured()).record


def _pair(model: nn.Module, x: torch.Tensor, y: torch.Tensor, *, cast: bool) -> GraphDiff:
    def captured(enabled: bool) -> GraphRecord:
        with wb.graph(model) as view:
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
        model.zero_grad()
        return view.record

    return wb.graph(captured(enabled=False)).diff(captured(enabled=cast)).record


def bf16() -> GraphDiff:
    """ResNet-50 in float32 and under autocast."""
    x, y = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
    return _pair(models.ResNet(), x, y, cast=True)


def equal() -> GraphDiff:
    """Two captures of one step."""
    x, y = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
    return _pair(models.ResNet(), x, y, cast=False)


class Loop(nn.Module):
    """An LSTM cell unrolled over as many steps as its input has."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(16, 32)
        self.head = nn.Linear(32, 10)
        self.dropout_from = 10**9

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (N, 10) for sequences (T, N, 16)."""
        h = c = x.new_zeros(x.shape[1], 32)
        for at, step in enumerate(x):
            h, c = self.cell(step, (h, c))
            if at >= self.dropout_from and at % 50 == 0:
                h = F.dropout(h, 0.1)
        return self.head(h)


def loop() -> GraphDiff:
    """660 steps of an LSTM cell (9,912 nodes); the second capture drops values in some of them."""
    model = Loop()
    x, y = torch.randn(660, 2, 16), torch.randint(0, 10, (2,))

    def captured() -> GraphRecord:
        with wb.graph(model) as view:
            F.cross_entropy(model(x), y).backward()
        model.zero_grad()
        return view.record

    first = captured()
    model.dropout_from = 300
    return wb.graph(first).diff(captured()).record


def chain() -> GraphDiff:
    """50,000 operations one after the other, and twenty more in the second capture."""

    def captured(extra: int) -> GraphRecord:
        torch.manual_seed(0)
        x = torch.randn(4, 64, requires_grad=True)
        value = x
        for at in range(16_667):
            value = torch.tanh(value * 1.01 + 0.1)
            if extra and at % (16_667 // extra) == 7:
                value = torch.sigmoid(value)
        return wb.graph(value.sum()).record

    return wb.graph(captured(0)).diff(captured(20)).record


MAKERS = (early_exit, bf16, equal, loop, chain)


def main() -> None:
    """Write the records asked for."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for make in MAKERS:
        if len(sys.argv) == 2 or make.__name__ in sys.argv[2:]:
            torch.manual_seed(0)
            path = folder / f"diff_{make.__name__}.wb"
            found = make()
            path.write_bytes(found.to_bytes())
            size = path.stat().st_size / 1e3
            print(f"{path}  {size:,.0f} kB, {len(found.node_state):,} rows: {found.sentence}")


if __name__ == "__main__":
    main()
