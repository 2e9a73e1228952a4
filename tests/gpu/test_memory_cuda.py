"""Memory on a real CUDA allocator. Needs a GPU; not run where there is none."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from workbench.experiment.loop.probe import StepContext
from workbench.memory import MemoryProbe, memory
from workbench.records import CATEGORIES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(512, 256, device="cuda"), torch.arange(512, device="cuda") % 10

    def step() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    return model, optimizer, step


def test_the_record_ends_in_what_the_allocator_holds():
    _, _, step = training()
    with memory() as mem:
        step()
    record = mem.record
    assert record.device == "cuda:0"
    active = torch.cuda.memory_stats()["active_bytes.all.current"]
    assert int(record.series()[:, -1].sum()) == active
    assert int(record.reserved()[-1]) == torch.cuda.memory_reserved()
    assert record.peak_bytes <= record.reserved_bytes


def test_the_peak_is_the_allocators_own():
    _, _, step = training()
    torch.cuda.reset_peak_memory_stats()
    with memory() as mem:
        step()
    peak = torch.cuda.memory_stats()["active_bytes.all.peak"]
    assert mem.record.peak_bytes == pytest.approx(peak, rel=0.02)


def test_categories_and_phases_reach_the_allocators_blocks():
    model, _, step = training()
    with memory() as mem:
        step()
    record = mem.record
    assert [p.name for p in record.phases] == ["forward", "backward", "optimizer"]
    end = dict(zip(CATEGORIES, record.series()[:, -1].tolist(), strict=True))
    requested = sum(p.numel() * 4 for p in model.parameters())
    for name in ("parameters", "gradients"):
        assert requested <= end[name] <= requested + 4 * 512
    assert end["optimizer"] >= 2 * requested
    parameters = record.block_category[record.block_end < 0] == CATEGORIES.index("parameters")
    assert int(parameters.sum()) == 4


def test_addresses_of_parameters_are_where_torch_says():
    model, _, step = training()
    with memory() as mem:
        step()
    record = mem.record
    rows = np.flatnonzero(record.block_category == CATEGORIES.index("parameters"))
    assert {int(record.block_address[row]) for row in rows} == {
        parameter.untyped_storage().data_ptr() for parameter in model.parameters()
    }


@pytest.mark.parametrize("was_on", [False, True])
def test_the_history_is_left_as_it_was(was_on: bool):
    _, _, step = training()
    torch.cuda.memory._record_memory_history("all" if was_on else None)
    try:
        with memory():
            step()
        assert torch._C._cuda_isHistoryEnabled() == was_on
    finally:
        torch.cuda.memory._record_memory_history(None)


def test_losses_are_the_same_recorded_or_not():
    def losses(recorded: set[int]) -> list[float]:
        _, _, step = training()
        found = []
        for number in range(5):
            if number in recorded:
                with memory():
                    found.append(step())
            else:
                found.append(step())
        return found

    assert losses({1, 3}) == losses(set())


def test_the_probe_counts_the_batch_it_moves_to_the_device():
    model, optimizer, _ = training()
    batch = (torch.randn(512, 256), torch.arange(512) % 10)
    probe = MemoryProbe()
    probe.before_step(
        StepContext(
            name="gpu", step=2, model=model, optimizer=optimizer, device=torch.device("cuda"),
            batch=batch, compiled=False,
        )
    )  # fmt: skip
    x, y = (part.cuda() for part in batch)
    probe.before_forward()
    loss = nn.functional.cross_entropy(model(x), y)
    probe.after_forward(loss)
    loss.backward()
    probe.after_backward()
    optimizer.step()
    record = probe.finish()
    inputs = record.block_category == CATEGORIES.index("buffers")
    assert int(record.block_bytes[inputs].sum()) >= 512 * 256 * 4


def test_a_dumped_snapshot_opens(tmp_path: Path):
    torch.cuda.memory._record_memory_history("all")
    try:
        _, _, step = training()
        step()
        path = tmp_path / "snapshot.pickle"
        torch.cuda.memory._dump_snapshot(str(path))
    finally:
        torch.cuda.memory._record_memory_history(None)
    record = memory(path).record
    segments = pickle.loads(path.read_bytes())["segments"]
    blocks = [block for segment in segments for block in segment["blocks"]]
    active = sum(block["size"] for block in blocks if block["state"] != "inactive")
    assert int(record.series()[:, -1].sum()) == active
    assert any(source.filename == __file__ for source in record.sources)
