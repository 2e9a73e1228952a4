"""Watching the tests of tensor values leaves the step, and everything else, as it was."""

from __future__ import annotations

import gc
import weakref

import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.unit.graph.forward.test_branches import Branching, EarlyExit, captured
from workbench.experiment import Experiment
from workbench.graph.forward.branches import BranchRecorder
from workbench.graph.probe import GraphProbe


def test_nothing_stays_alive_and_a_step_is_what_it_was():
    seen = []

    def branch(model, h):
        value = h.sum()
        seen.append(weakref.ref(value))
        if value.item() > model.limit:
            del value
            gc.collect()
            assert seen[-1]() is None
        loose = h.mean()
        seen.append(weakref.ref(loose))
        if loose > 3:
            del loose
            h.relu()
            assert seen[-1]() is None

    model = Branching(branch)
    record = captured(model)
    assert len(record.branches) == 2
    assert all(ref() is None for ref in seen)


def test_a_fault_is_a_note(monkeypatch):
    def broken(*_):
        raise ValueError("no columns")

    monkeypatch.setattr(BranchRecorder, "_note", broken)
    record = captured(EarlyExit(1.0))
    assert record.branches == ()
    assert record.notes[-1].endswith("later tests are missing (ValueError: no columns).")


def test_an_experiment_captures_them_too(tmp_path):
    data = TensorDataset(torch.randn(8, 4), torch.randint(0, 3, (8,)))
    loader = DataLoader(data, batch_size=4)
    exp = Experiment(EarlyExit(1.0), loader, runs=tmp_path, seed=3, device="cpu")
    handle = exp.capture(GraphProbe())
    exp.run(steps=1, wait=True)
    record = handle.wait(timeout=120)
    exp.close()
    assert [one.taken for one in record.branches] == [False]


def test_compiled_code_is_left_alone():
    compiled = torch.compile(EarlyExit(1.0), backend="eager")
    compiled(torch.ones(2, 4)).sum().backward()
    torch._dynamo.utils.counters.clear()
    record = captured(compiled)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0
    assert record.root
