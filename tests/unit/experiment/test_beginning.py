"""Who begins a run, and who waits for one: one of two, never for itself, and not for a browser."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import workbench as wb
from workbench.experiment import Experiment
from workbench.experiment.report.events import StepDone
from workbench.experiment.runtime.runner import Runner
from workbench.panel.channel.commands import execute

Ask = Callable[[Experiment], object]


class Gate(nn.Linear):
    """Waits in its forward, once, until it may continue."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.inside, self.go_on = threading.Event(), threading.Event()

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as torch calls it
        self.inside.set()
        self.go_on.wait()
        return super().forward(input)


def made(runs: Path, model: nn.Module | None = None) -> Experiment:
    data = (torch.randn(32, 6), torch.randint(0, 3, (32,)))
    return Experiment(model or nn.Linear(6, 3), data, batch_size=8, runs=runs, device="cpu")


WAITING: dict[str, Ask] = {
    "wb.graph": wb.graph,
    "wb.memory": wb.memory,
    "exp.predict": lambda exp: exp.predict(torch.randn(2, 6)),
    "exp.wait": lambda exp: exp.wait(),
    "capture": lambda exp: exp.capture(_probe()).wait(),
}


def _probe() -> object:
    from workbench.graph import GraphProbe

    return GraphProbe()


@pytest.mark.parametrize("name", WAITING)
def test_the_training_thread_does_not_wait_for_itself(tmp_path: Path, name: str) -> None:
    exp = made(tmp_path)
    said: list[str] = []

    def ask(event: object) -> None:
        if isinstance(event, StepDone) and not said:
            try:
                WAITING[name](exp)
            except RuntimeError as error:
                said.append(str(error))

    exp.subscribe(ask, every_step=True)
    exp.run(steps=3, wait=True)
    assert exp.step_count == 3
    assert said == [
        "called inside a step, on the thread that trains: call it from a cell or another "
        "thread, or once the run has ended"
    ]


def test_of_two_runs_at_once_the_plan_is_that_of_the_one_that_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found that nothing trains; then both begin."""
    exp = made(tmp_path)
    epochs = exp.epochs
    real, both = Runner.start, threading.Barrier(2)

    def at_once(self: Runner, *given: object, **named: object) -> None:
        both.wait()
        real(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Runner, "start", at_once)
    lost: list[int] = []

    def begin(count: int) -> None:
        try:
            exp.run(epochs=count)
        except RuntimeError:
            lost.append(count)

    threads = [threading.Thread(target=begin, args=(count,)) for count in (2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    exp.wait()
    (loser,) = lost
    won = 7 - loser
    assert epochs not in (2, 5)
    assert (exp.epochs, exp.total_steps, exp.step_count) == (won, won * 4, won * 4)


def test_a_run_that_could_not_begin_leaves_the_plan(tmp_path: Path) -> None:
    exp = made(tmp_path, gate := Gate())
    run = exp.run(epochs=2)
    gate.inside.wait()
    try:
        with pytest.raises(RuntimeError, match="is training already"):
            exp.run(epochs=50)
        assert (exp.epochs, exp.total_steps) == (2, 8)
    finally:
        gate.go_on.set()
    run.wait()
    assert exp.step_count == 8


@pytest.mark.parametrize("last_word", ["run", "stop"])
def test_a_browser_that_runs_during_a_pause_is_not_waited_for(
    tmp_path: Path, last_word: str
) -> None:
    """The step under way may take minutes, and every view is served by the calling thread."""
    exp = made(tmp_path, gate := Gate())
    exp.epochs = 2
    exp.run()
    gate.inside.wait()
    execute(exp, "pause", {})
    execute(exp, "run", {})  # returns, though the step cannot end yet
    if last_word == "stop":
        execute(exp, "stop", {})
    gate.go_on.set()
    exp.wait()
    expected = ("finished", 8) if last_word == "run" else ("stopped", 1)
    assert (exp.status, exp.step_count) == expected
