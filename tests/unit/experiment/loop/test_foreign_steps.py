"""An optimizer that a cell steps: the weights are the cell's, and the training says so."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.unit.experiment.plain_loop import BATCH, batches, data, linear, seeded
from workbench.experiment import Experiment
from workbench.experiment.loop.step_undo import undone

RATE = 0.1


class Gate(nn.Linear):
    """Waits in its forward, from the second step on, until it may continue."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.calls = 0
        self.inside, self.go_on = threading.Event(), threading.Event()

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as torch calls it
        self.calls += 1
        if self.calls == 2:
            self.inside.set()
            self.go_on.wait()
        return super().forward(input)


def made(model: nn.Module, runs: Path) -> tuple[Experiment, torch.optim.Optimizer]:
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    exp = Experiment(
        model, batches(data()), optimizer=optimizer, batch_size=BATCH, runs=runs, device="cpu"
    )
    return exp, optimizer


def cells_own_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = data()
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def about_steps(exp: Experiment) -> list[str]:
    return [note for note in exp.notes if "optimizer was stepped" in note]


def test_a_step_between_runs_is_gone_on_from_and_reported(tmp_path: Path) -> None:
    by_hand = seeded(linear)
    sgd = torch.optim.SGD(by_hand.parameters(), lr=RATE)
    for index, (x, y) in enumerate(batches(data())[:3]):
        if index == 2:
            cells_own_step(by_hand, sgd)
        sgd.zero_grad()
        F.cross_entropy(by_hand(x), y).backward()
        sgd.step()

    model = seeded(linear)
    exp, optimizer = made(model, tmp_path)
    exp.run(steps=2, wait=True)
    assert about_steps(exp) == []
    cells_own_step(model, optimizer)
    exp.run(steps=1, wait=True)
    assert torch.equal(model.weight, by_hand.weight)
    assert about_steps(exp) == [
        "the optimizer was stepped once by a cell before step 3, which continues with the "
        "resulting weights"
    ]


def test_steps_while_it_trains_are_reported(tmp_path: Path) -> None:
    model = Gate()
    exp, optimizer = made(model, tmp_path)
    run = exp.run(steps=3)
    model.inside.wait()
    optimizer.step()
    optimizer.step()
    model.go_on.set()
    run.wait()
    (note,) = about_steps(exp)
    assert note.startswith("the optimizer was stepped 2 times by a cell while it trained, before")
    assert note.endswith("pause first")


def test_its_own_steps_and_those_of_another_experiment_are_not(tmp_path: Path) -> None:
    exp, optimizer = made(linear(), tmp_path)
    exp.run(epochs=2, wait=True)
    other = linear()
    cells_own_step(other, torch.optim.SGD(other.parameters(), lr=RATE))
    exp.modes = "bf16"
    exp.run(epochs=1, wait=True)
    assert optimizer is exp.optimizer
    assert about_steps(exp) == []


def test_another_experiment_that_steps_it_is_named(tmp_path: Path) -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    first, second = (
        Experiment(model, data(), optimizer=optimizer, name=name, runs=tmp_path, device="cpu")
        for name in ("first", "second")
    )
    first.run(steps=1, wait=True)
    second.run(steps=2, wait=True)
    cells_own_step(model, optimizer)
    first.run(steps=1, wait=True)
    assert about_steps(first) == [
        "the optimizer was stepped 2 times by second and once by a cell before step 2, which "
        "continues with the resulting weights"
    ]


def test_a_cells_step_after_steps_that_were_undone_is_a_cells(tmp_path: Path) -> None:
    """They are computed on the cell's thread where nothing trains."""
    model = linear()
    exp, optimizer = made(model, tmp_path)
    exp.run(steps=1, wait=True)
    with undone(exp._training):
        exp._training.run_step(exp._training.cursor.preview())
    cells_own_step(model, optimizer)
    exp.run(steps=1, wait=True)
    (note,) = about_steps(exp)
    assert note.startswith("the optimizer was stepped once by a cell before step 2")


def test_the_optimizer_keeps_no_hook_of_experiments_that_are_gone(tmp_path: Path) -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(5):
        exp = Experiment(model, data(), optimizer=optimizer, runs=tmp_path, device="cpu")
    exp.run(steps=1, wait=True)
    gc.collect()
    assert len(hooks(optimizer)) == 1
    exp.close()
    assert not hooks(optimizer)
    assert torch.isfinite(model.weight).all()


def hooks(optimizer: torch.optim.Optimizer) -> dict[int, object]:
    return optimizer._optimizer_step_post_hooks  # type: ignore[attr-defined, no-any-return]
