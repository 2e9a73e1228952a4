"""Records to draw: one real training step, and ones built by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from workbench.memory import memory
from workbench.memory.attribution import Line
from workbench.memory.blocks import Block
from workbench.memory.build import record_of
from workbench.records import MemoryRecord, Phase

MIB = 1 << 20


@pytest.fixture(scope="session")
def step_record() -> MemoryRecord:
    """Forward, backward and Adam of a small network, as recorded."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters())
    with memory() as mem:
        nn.functional.cross_entropy(model(torch.randn(512, 64)), torch.arange(512) % 10).backward()
        optimizer.step()
    return mem.record


@pytest.fixture
def hand_record() -> Callable[..., MemoryRecord]:
    """Build a record from ``(start, end, mib, category, module)`` rows."""

    def build(rows, phases=(), **facts) -> MemoryRecord:
        blocks = []
        for start, end, mib, category, module in rows:
            block = Block(mib * MIB, "cpu", 0)
            block.start, block.end, block.category, block.module = start, end, category, module
            block.op, block.line = "aten.mm", Line("model.py", 11, "forward")
            blocks.append(block)
        given = {
            "title": "digits, step 3", "experiment": "digits", "step": 3, "device": "cpu",
            "basis": "Measured.", "notes": (), "started_ns": 0,
        }  # fmt: skip
        return record_of(
            blocks, [Phase(name=n, start=s, end=e) for n, s, e in phases], **given | facts
        )

    return build
