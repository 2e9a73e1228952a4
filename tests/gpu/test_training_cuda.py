"""Memory of an experiment on a real card: what is logged, and a run that runs out."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.gpu.programs import limit
from workbench.experiment import Experiment, RunError
from workbench.experiment.loop import measures
from workbench.experiment.report.events import Event, StepDone
from workbench.metrics import memory

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

MIB = 2**20
LOGGED = {
    "memory/allocated": torch.cuda.memory_allocated,
    "memory/reserved": torch.cuda.memory_reserved,
    "memory/allocated_peak": torch.cuda.max_memory_allocated,
}
PENDING = 64 * 2**10
"""Bytes of scalars that wait on the device, and that another thread reads and frees meanwhile."""


@pytest.fixture(autouse=True)
def _whole_card() -> Iterator[None]:
    """What a test before left is given back, and a limit of its own does not outlive a test."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


def experiment(folder: Path, *, width: int = 512, batch: int = 64) -> Experiment:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, 10))
    data = torch.randn(4 * batch, 256), torch.arange(4 * batch) % 10
    return Experiment(model, data, batch_size=batch, runs=folder, device="cuda")


def test_scalars_are_what_torch_says_at_the_same_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "EVERY", 1)
    exp = experiment(tmp_path)
    memory.attach(exp)
    seen: dict[str, list[int]] = {name: [] for name in LOGGED}

    def compare(event: Event) -> None:
        if isinstance(event, StepDone):
            for name, read in LOGGED.items():
                seen[name].append(read(exp.device))

    exp.subscribe(compare, every_step=True)
    run = exp.run(steps=20, wait=True)
    for name, values in seen.items():
        logged = run.metrics[name]
        assert logged["step"].tolist() == list(range(1, 21))
        np.testing.assert_allclose(logged["value"], values, atol=PENDING, err_msg=name)
    peak = run.metrics["memory/allocated_peak"]["value"]
    assert (peak >= run.metrics["memory/allocated"]["value"]).all()
    assert (np.diff(peak) >= 0).all(), "nobody reset it"
    assert "memory/resident" not in run.metrics
    exp.close()


def test_fragmentation_is_what_cannot_be_given_back(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    before = memory.memory_now(exp.device)["memory/fragmentation"]
    # one segment of eight blocks, every second of them free: empty_cache cannot return it
    blocks = [torch.empty(2 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    del blocks[::2]
    torch.cuda.empty_cache()
    now = memory.memory_now(exp.device)
    assert now["memory/fragmentation"] - before >= 4 * 2 * MIB
    assert now["memory/fragmentation"] <= now["memory/reserved"] - now["memory/allocated"]
    exp.close()


def test_reading_waits_for_nothing() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    torch.zeros(1, device=device)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # a second or so: a read that waited would find it over
    running = torch.cuda.Event()
    running.record()
    assert memory.memory_now(device)["memory/reserved"] > 0
    assert not running.query()
    torch.cuda.synchronize()


def test_a_run_survives_a_real_out_of_memory(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    exp.run(steps=3, wait=True)
    before = {name: value.clone() for name, value in exp.model.state_dict().items()}
    held = torch.cuda.memory_allocated()
    step = exp.step_count
    limit(64 * MIB)
    hog = Hog(exp.model)
    exp.model = hog
    with pytest.raises(RunError, match="out of memory"):
        exp.run(steps=1).wait(120)
    assert exp.failure is not None
    assert exp.step_count == step, "the step that failed was not applied"
    for name, value in exp.model.inner.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    gc.collect()
    assert torch.cuda.memory_allocated() <= held + 4 * MIB, "the failed step holds nothing"
    hog.num_bytes = 0
    exp.run(steps=3, wait=True)
    assert exp.status == "finished"
    assert exp.step_count == step + 3
    exp.close()


class Hog(nn.Module):
    """A model that asks for more than there is, until it is told not to."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.num_bytes = 512 * MIB

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.inner(x)
        if self.num_bytes:
            logits = logits + x.new_zeros(self.num_bytes // x.element_size()).sum()
        return logits
