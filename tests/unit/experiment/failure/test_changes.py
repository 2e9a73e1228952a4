"""A change as code, as it is made, and as it is tried: three ways to the same settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.experiment.failure.changes import Change
from workbench.experiment.loop.guard import undone

CHANGES = {
    "modes": Change(modes="bf16"),
    "batch": Change(batch_size=4),
    "validation": Change(val_batch_size=3),
    "lists": Change(foreach=False),
    "all": Change(modes="bf16", batch_size=2, foreach=False),
}


def experiment(folder: Path) -> Experiment:
    torch.manual_seed(0)
    data = torch.randn(32, 6), torch.arange(32) % 3
    net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3))
    exp = Experiment(
        net,
        data,
        data,
        batch_size=16,
        device="cpu",
        runs=folder,
        optimizer=lambda p: torch.optim.Adam(p, foreach=True),
    )
    exp.step(1).wait()
    return exp


def settings(exp: Experiment) -> tuple[Any, ...]:
    lists = [group["foreach"] for group in exp.optimizer.param_groups]
    return exp.modes, exp.batch_size, exp.val_batch_size, exp.card, *lists


@pytest.mark.parametrize("name", CHANGES)
def test_its_code_does_what_making_it_does(tmp_path: Path, name: str) -> None:
    made, run = experiment(tmp_path), experiment(tmp_path)
    before = settings(made)
    CHANGES[name].make(made._settings, made.optimizer)
    exec(CHANGES[name].code, {"exp": run})
    assert settings(made) == settings(run) != before
    for exp in (made, run):
        exp.step(1).wait()
        assert exp.step_count == 2
        assert exp.failure is None
        exp.close()


@pytest.mark.parametrize("name", ["modes", "lists", "all"])
def test_what_is_tried_inside_leaves_no_trace(tmp_path: Path, name: str) -> None:
    exp = experiment(tmp_path)
    training = exp._training
    state = {key: value.clone() for key, value in exp.model.state_dict().items()}
    moments = [value.clone() for one in exp.optimizer.state.values() for value in one.values()]
    before, attached = settings(exp), training.attached
    batch = training.cursor.preview()
    with undone(training):
        CHANGES[name].try_on(training)
        for _ in range(3):
            training.run_step(batch)
        assert not torch.equal(exp.model.state_dict()["0.weight"], state["0.weight"])
    assert settings(exp) == before
    assert training.attached is attached
    for key, value in exp.model.state_dict().items():
        assert torch.equal(value, state[key]), key
    now = [value for one in exp.optimizer.state.values() for value in one.values()]
    assert all(torch.equal(a, b) for a, b in zip(moments, now, strict=True))
    exp.close()


def test_what_is_raised_inside_leaves_no_trace_either(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    before = settings(exp)

    def fail() -> None:
        with undone(exp._training):
            CHANGES["all"].try_on(exp._training)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert settings(exp) == before
    assert not exp._training.rehearsing
    exp.step(1).wait()
    assert exp.step_count == 2
    exp.close()
