"""One training step, predicted without a GPU and measured on one.

``python -m tests.gpu.predicting NAME MODES FILE`` measures in a process of its own, so that nothing
else is in the allocator: steps until the state is steady, then one that is recorded into FILE.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from tests.gpu.programs import Recurrent, Transformer, block
from workbench.allocator.simulator.gpus import CONTEXT_BYTES, Gpu
from workbench.experiment import Experiment
from workbench.memory import memory
from workbench.memory.prediction.predict import predicted_step
from workbench.records import MemoryRecord

Backbone = tuple[nn.Module, torch.Tensor]
NUM_STEPS = 3


def cnn() -> Backbone:
    blocks = [block(a, b, 2) for a, b in pairwise((3, 32, 64, 128, 256))]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    return model, torch.randn(128, 3, 96, 96)


def transformer() -> Backbone:
    return Transformer(), torch.randint(0, 1000, (64, 128))


def lstm() -> Backbone:
    return Recurrent(), torch.randn(128, 100, 64)


BACKBONES: dict[str, Callable[[], Backbone]] = {
    "CNN": cnn, "transformer": transformer, "LSTM": lstm
}  # fmt: skip


def experiment(name: str, modes: str, folder: str | Path, device: str) -> Experiment:
    """Four batches of a backbone, with AdamW."""
    torch.manual_seed(0)
    model, x = BACKBONES[name]()
    return Experiment(
        model,
        (x, torch.arange(len(x)) % 10),
        batch_size=len(x) // 4,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        runs=folder,
        modes=modes,
        device=device,
    )


def predicted(name: str, modes: str, card: Gpu, folder: str | Path) -> MemoryRecord:
    """On the CPU, whatever else there is."""
    exp = experiment(name, modes, folder, "cpu")
    record = predicted_step(exp, card)
    exp.close()
    return record


def measured(name: str, modes: str, folder: str | Path) -> MemoryRecord:
    """On the GPU, in steady state."""
    exp = experiment(name, modes, folder, "cuda")
    exp.run(steps=NUM_STEPS, wait=True)
    record = memory(exp).record
    exp.close()
    return record


def this_gpu() -> Gpu:
    """The GPU of this machine."""
    properties = torch.cuda.get_device_properties(0)
    return Gpu(properties.name, max(properties.total_memory, 2 * CONTEXT_BYTES), "this machine")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as runs:
        measured(sys.argv[1], sys.argv[2], runs).save(sys.argv[3])
