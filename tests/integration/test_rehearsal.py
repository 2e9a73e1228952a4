"""A capture of a run that is over leaves it over, and everything in it as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from tests.saved_training import snapshot
from workbench.experiment import Experiment
from workbench.gradient_flow.log import gradient_flow
from workbench.graph import GraphProbe
from workbench.memory import MemoryProbe

STEPS = 6


class Moody(nn.Module):
    """Dropout, batch norm, a large buffer that changes, and a fault that can be switched on."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5))
        self.head = nn.Linear(16, 3)
        self.register_buffer("table", torch.zeros(2**21))
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table += 1
        if self.fails:
            raise RuntimeError("the user's own fault\nwith a second line")
        return self.head(self.body(x).relu())


class Averaging(torch.optim.Optimizer):
    """State in a list, and a counter beside the learning rate."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "steps": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["steps"] += 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    past = self.state[parameter].setdefault("past", [])
                    past.append(parameter.grad.clone())
                    past[0].mul_(0.9)
                    parameter.sub_(group["lr"] * sum(past) / group["steps"])


def data(samples: int = 48) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(samples, 8, generator=generator), torch.arange(samples) % 3


def experiment(tmp_path: Path, **options: Any) -> Experiment:
    torch.manual_seed(3)
    settings = {"batch_size": 16, "seed": 5, "device": "cpu", "train": data(), **options}
    return Experiment(Moody(), runs=tmp_path, **settings)


def losses(exp: Experiment) -> list[float]:
    exp.scalars.flush()
    return exp.scalars.since("train/loss", 0)[1].tolist()


def flat(value: Any) -> list[Any]:
    """The leaves of a nested state, tensors as bytes."""
    if isinstance(value, torch.Tensor):
        return [value.dtype, tuple(value.shape), value.detach().numpy().tobytes()]
    if isinstance(value, dict):
        return [leaf for key in value for leaf in [key, *flat(value[key])]]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def everything(exp: Experiment) -> list[Any]:
    training = exp._training
    return [
        flat(snapshot(training)),
        flat([p.grad for p in exp.model.parameters()]),
        (exp.status, exp.message, exp.step_count, exp.total_steps, exp.failure),
        (losses(exp), exp.markers, gradient_flow(exp).step.tolist()),
        (random.getstate(), str(np.random.get_state())),
        training.cursor.index,
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "sgd", "clip_grad_norm": 0.1},
        {"optimizer": Averaging},
        {"modes": "bf16"},
        {"scheduler": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=STEPS)},
    ],
    ids=["adamw", "clipped", "nested state", "bf16", "used-up schedule"],
)
def test_a_finished_run_is_what_it_was(tmp_path: Path, options: dict[str, Any]) -> None:
    exp = experiment(tmp_path, **options)
    exp.run(steps=STEPS, wait=True)
    before = everything(exp)
    graph, memory = exp.capture(GraphProbe()), exp.capture(MemoryProbe())
    record = graph.wait(120)
    assert everything(exp) == before
    assert exp.status == "finished"
    assert record.step == STEPS + 1
    assert any("not applied" in note for note in record.notes)
    assert any("not applied" in note for note in memory.wait(120).notes)


def test_training_goes_on_as_if_nobody_had_looked(tmp_path: Path) -> None:
    plain, watched = experiment(tmp_path), experiment(tmp_path)
    for exp in (plain, watched):
        exp.run(steps=STEPS - 2, wait=True)
        if exp is watched:
            exp.capture(GraphProbe()).wait(120)
            torch.rand(3)
            exp.capture(MemoryProbe()).wait(120)
        exp.run(steps=STEPS, wait=True)
    assert losses(watched) == losses(plain)
    assert watched.step_count == 2 * STEPS - 2


def test_random_numbers_of_cells_are_left_alone(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    exp.run(steps=2, wait=True)
    torch.manual_seed(11)
    expected = torch.rand(4)
    torch.manual_seed(11)
    exp.capture(GraphProbe()).wait(120)
    assert torch.equal(torch.rand(4), expected)


class Stream(IterableDataset[Any]):
    """Batches of 8 that can be read once."""

    def __init__(self, num_batches: int) -> None:
        inputs, targets = data(8 * num_batches)
        self.unread = list(zip(inputs.split(8), targets.split(8), strict=True))

    def __iter__(self) -> Iterator[Any]:
        while self.unread:
            yield self.unread.pop(0)


def test_a_stream_that_cannot_be_read_again_loses_no_batch_to_it(tmp_path: Path) -> None:
    streams, runs = [Stream(6), Stream(6)], []
    for captures, stream in zip((0, 2), streams, strict=True):
        exp = experiment(tmp_path, train=DataLoader(stream, batch_size=None))
        exp.model.body[2].p = 0.0  # a new pass over a loader draws a seed where dropout draws too
        exp.run(steps=1, wait=True)
        for _ in range(captures):
            exp.capture(GraphProbe()).wait(120)
        exp.run(steps=2, wait=True)
        runs.append(losses(exp))
    assert runs[0] == runs[1]
    assert len(streams[0].unread) == len(streams[1].unread)


def test_a_fault_in_it_is_told_and_changes_nothing(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    exp.run(steps=STEPS, wait=True)
    before = everything(exp)
    exp.model.fails = True
    with pytest.raises(RuntimeError, match="no graph"):
        exp.capture(GraphProbe()).wait(120)
    assert exp.message == "the step for a capture raised RuntimeError: the user's own fault"
    after = everything(exp)
    assert after[:2] == before[:2]
    assert (exp.status, exp.failure) == ("finished", None)
    exp.model.fails = False
    assert exp.capture(GraphProbe()).wait(120)
    exp.run(steps=1, wait=True)
    assert exp.status == "finished"


def test_data_that_is_used_up_is_told_to_who_waits(tmp_path: Path) -> None:
    exp = experiment(tmp_path, train=DataLoader(Stream(1), batch_size=None))
    exp.run(steps=1, wait=True)
    with pytest.raises(RuntimeError, match="before it began"):
        exp.capture(GraphProbe()).wait(120)
    assert "DataError" in exp.message
    assert exp.status == "finished"


def test_what_is_asked_for_meanwhile_waits(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    exp.run(steps=2, wait=True)
    first = exp.capture(GraphProbe())
    exp.compute_captures()
    second = exp.capture(MemoryProbe())
    exp.compute_captures()
    exp.step(2).wait(120)
    assert exp.step_count == 4
    exp.run(steps=1, wait=True)
    assert first.wait(1).step == 3
    assert second.wait(1).step in (3, 4)


def test_modes_chosen_since_are_those_it_is_computed_with(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    exp.run(steps=2, wait=True)
    exp.modes = "bf16"
    record = exp.capture(GraphProbe()).wait(120)
    assert "bfloat16" in set(record.strings)
    assert exp.step_count == 2
    assert exp.model.head.weight.dtype is torch.float32
