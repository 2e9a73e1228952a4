"""Work between two steps gets what the next step is made of, and leaves no trace."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.waiting import wait_until
from workbench.experiment import Experiment
from workbench.experiment.report.events import Event, StepDone
from workbench.experiment.runtime.step_boundary import NextStep, between_steps
from workbench.panel.channel import commands


def experiment(folder: Path, **options: Any) -> Experiment:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
    data = torch.randn(48, 8), torch.arange(48) % 3
    return Experiment(model, data, batch_size=8, runs=folder, **options)


def draw(step: NextStep) -> int:
    """Work that draws from every source of random numbers."""
    torch.rand(3), random.random(), np.random.rand()
    return step.step


def test_an_experiment_that_does_not_train_answers_at_once(tmp_path):
    exp = experiment(tmp_path, clip_grad_norm=1.0)
    threads: list[Any] = []

    def look(step: NextStep) -> NextStep:
        threads.append(threading.current_thread())
        return step

    step = between_steps(exp, look)
    assert threads == [threading.current_thread()]
    assert (step.name, step.step, step.clip_grad_norm) == (exp.name, 1, 1.0)
    assert step.model is exp.model
    assert step.batch[0].shape == (8, 8)
    exp.close()


def test_the_batch_is_the_one_of_the_next_step(tmp_path):
    seen: list[torch.Tensor] = []

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.clone())
            return self.head(x)

    exp = Experiment(
        Looking(), (torch.randn(48, 8), torch.arange(48) % 3), batch_size=8, runs=tmp_path
    )
    exp.run(steps=2, wait=True)
    expected = between_steps(exp, lambda step: step.batch[0])
    exp.run(steps=1, wait=True)
    assert torch.equal(seen[-1], expected)
    exp.close()


@pytest.mark.parametrize("persistent", [True, False])
def test_batches_of_worker_processes_are_all_seen_though_somebody_looks(tmp_path, persistent):
    seen: list[int] = []

    class Noting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(1, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.extend(int(value) for value in x[:, 0])
            return self.head(x)

    data = TensorDataset(torch.arange(64.0).unsqueeze(1), torch.arange(64) % 3)
    loader = DataLoader(data, 8, num_workers=1, persistent_workers=persistent)
    exp = Experiment(Noting(), loader, runs=tmp_path, epochs=1, device="cpu")
    looked: list[torch.Tensor] = []
    for _ in range(3):
        exp.step()
        exp.wait()
        looked.append(between_steps(exp, lambda step: step.batch[0][:, 0].clone()))
    exp.resume()
    exp.wait()
    assert (exp.status, exp.step_count) == ("finished", 8)
    assert seen == list(range(64))
    assert [rows.tolist() for rows in looked] == [list(range(n, n + 8)) for n in (8, 16, 24)]
    exp.close()


def test_a_run_goes_on_as_if_nobody_had_looked(tmp_path):
    def losses(*, looks: bool) -> list[float]:
        exp = experiment(tmp_path)
        run = exp.run(steps=3, wait=True)
        if looks:
            assert between_steps(exp, draw) == 4
        random.seed(1)
        expected = random.random()
        random.seed(1)
        if looks:
            between_steps(exp, draw)
        assert random.random() == expected, "what is outside a run is put back too"
        run = exp.run(steps=3, wait=True)
        found = run.metrics["train/loss"]["value"].tolist()
        exp.close()
        return found

    assert losses(looks=True) == losses(looks=False)


def test_while_a_run_trains_it_is_done_on_its_thread(tmp_path):
    def losses(*, looks: bool) -> list[float]:
        exp = experiment(tmp_path)
        run = exp.run(steps=400)
        names: set[str] = set()
        while looks and exp.status == "training" and len(names) < 1:
            between_steps(exp, lambda step: names.add(threading.current_thread().name))
            between_steps(exp, draw)
        run.wait(120)
        assert names <= {"workbench-runner", "MainThread"}
        found = run.metrics["train/loss"]["value"].tolist()
        exp.close()
        return found

    assert losses(looks=True) == losses(looks=False)


def test_a_fault_of_the_work_is_the_callers_and_not_the_runs(tmp_path):
    exp = experiment(tmp_path)
    run = exp.run(steps=200)
    with pytest.raises(ZeroDivisionError):
        between_steps(exp, lambda _: 1 / 0)
    run.wait(120)
    assert exp.status == "finished"
    exp.close()


def test_a_callback_of_a_step_is_refused_instead_of_waiting_for_itself(tmp_path):
    exp = experiment(tmp_path)
    problems: list[str] = []

    def ask(event: Event) -> None:
        if isinstance(event, StepDone):
            with pytest.raises(RuntimeError, match="called inside a step") as caught:
                between_steps(exp, draw)
            problems.append(str(caught.value))

    exp.subscribe(ask, every_step=True)
    exp.run(steps=2).wait(120)
    assert len(problems) == 2
    exp.close()


class LongWork:
    """Work between two steps, on a thread of its own, that ends when it is told to."""

    def __init__(self, exp: Experiment) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self.result: Future[int] = self._pool.submit(between_steps, exp, self._work)

    def _work(self, step: NextStep) -> int:
        self.begun.set()
        assert self.may_end.wait(300)
        return step.step

    def end(self) -> int:
        self.may_end.set()
        self._pool.shutdown()
        return self.result.result()


@pytest.mark.parametrize(
    ("name", "status", "steps"),
    [
        ("run", "finished", 12),
        ("resume", "finished", 12),
        ("step", "paused", 3),
        ("stop", "stopped", 2),
        ("pause", "paused", 2),
    ],
)
def test_a_panel_does_not_wait_for_long_work(tmp_path, name, status, steps):
    exp = experiment(tmp_path, epochs=2)
    exp.step(2).wait()
    work = LongWork(exp)
    assert work.begun.wait(120)
    commands.execute(exp, "set_learning_rate", {"value": 0.5})
    commands.execute(exp, name, {})
    assert not work.result.done(), "it was not waited for"
    assert (exp.status, exp.step_count) == ("paused", 2), "nothing trains meanwhile"
    assert work.end() == 3
    exp.wait(120)
    assert (exp.status, exp.step_count) == (status, steps)
    assert exp.learning_rate == 0.5
    exp.close()


def test_a_cell_that_trains_on_waits_for_long_work(tmp_path, monkeypatch):
    exp = experiment(tmp_path)
    work = LongWork(exp)
    assert work.begun.wait(120)
    join, found = exp._runner.join, []

    def joined(timeout: float | None = None) -> bool:
        found.append((exp.status, exp._runner.rehearsing, work.result.done()))
        work.may_end.set()
        return join(timeout)

    monkeypatch.setattr(exp._runner, "join", joined)
    exp.run(steps=2, wait=True)
    assert found[0] == ("idle", True, False), "the work was waited for first"
    assert (work.end(), exp.status, exp.step_count) == (1, "finished", 2)
    exp.close()


def test_long_work_that_a_run_ends_with_keeps_nobody_waiting(tmp_path, monkeypatch):
    exp = experiment(tmp_path)
    works: list[LongWork] = []

    def end() -> None:
        works.append(LongWork(exp))
        wait_until(lambda: exp._runner._commands)

    monkeypatch.setattr(exp._training, "end", end)
    exp.run(steps=2)
    wait_until(lambda: works and works[0].begun.is_set())
    exp.stop()
    commands.execute(exp, "step", {})
    assert not works[0].result.done(), "it was not waited for"
    assert exp.status == "finished"
    monkeypatch.undo()
    assert works[0].end() == 3
    exp.wait(120)
    assert (exp.status, exp.step_count) == ("paused", 3)
    exp.close()
