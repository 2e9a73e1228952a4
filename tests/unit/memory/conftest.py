"""Records to draw: one real training step, and ones built by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from workbench.allocator.simulator.gpus import CONTEXT_BYTES
from workbench.memory import memory
from workbench.memory.recording.attribution import Line
from workbench.memory.recording.record_builder import record_of
from workbench.memory.recording.storage_lifetimes import Block
from workbench.memory.simulation.simulated_record import simulated
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


@pytest.fixture(scope="session")
def refused_record() -> MemoryRecord:
    """A forward that a simulated GPU of 40 MiB refuses something in the middle of."""
    torch.manual_seed(0)
    body = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(12)]
    model, rows = nn.Sequential(*body), torch.randn(1024, 512)
    with memory() as mem:
        model(rows).sum().backward()
    found = simulated(mem.record, gpu=(40 << 20) + CONTEXT_BYTES)
    assert len(found.oom_event)
    return found


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
