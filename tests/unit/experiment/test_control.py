"""Commands to a run in quick succession: the last one holds, and none is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.waiting import wait_until
from workbench.experiment import Experiment
from workbench.experiment.report.events import Event, RunStarted, StatusChanged
from workbench.panel.channel.commands import execute


class Turnstile(nn.Linear):
    """Lets one step through at a time, each on a signal."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.inside, self.let_through = threading.Semaphore(0), threading.Semaphore(0)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as torch calls it
        self.inside.release()
        self.let_through.acquire()
        return super().forward(input)

    def open(self) -> None:
        """Let all that is to come through."""
        self.let_through.release(10_000)


def made(runs: Path, model: nn.Module, epochs: int = 2) -> Experiment:
    data = (torch.randn(32, 6), torch.randint(0, 3, (32,)))
    return Experiment(model, data, batch_size=8, epochs=epochs, runs=runs, device="cpu")


def in_a_step(runs: Path) -> tuple[Experiment, Turnstile]:
    """An experiment in the middle of its first step of eight."""
    exp = made(runs, turnstile := Turnstile())
    exp.run()
    turnstile.inside.acquire()
    return exp, turnstile


Words = tuple[str, ...]


@pytest.mark.parametrize(
    ("words", "status", "steps"),
    [
        (("pause", "resume", "pause"), "paused", 1),
        (("pause", "resume", "pause", "resume"), "finished", 8),
        (("pause", "resume", "stop"), "stopped", 1),
        (("stop", "pause"), "stopped", 1),
        (("pause", "step"), "paused", 2),
        (("pause", "step", "step"), "paused", 3),
        (("pause", "step", "resume"), "finished", 8),
        (("pause", "step", "pause"), "paused", 1),
        (("stop", "step"), "paused", 2),
    ],
)
@pytest.mark.parametrize("who", ["cell", "panel"])
def test_the_last_word_within_a_step_holds(
    tmp_path: Path, words: Words, status: str, steps: int, who: str
) -> None:
    exp, turnstile = in_a_step(tmp_path)
    for word in words:
        if who == "cell":
            getattr(exp, word)()
        else:
            execute(exp, word, {})
    turnstile.open()
    exp.wait()
    assert (exp.status, exp.step_count) == (status, steps)


@pytest.mark.parametrize(
    ("words", "status", "steps"),
    [(("resume",), "finished", 8), (("pause", "step"), "paused", 2), (("step",), "paused", 3)],
)
def test_single_steps_under_way_hear_of_it(
    tmp_path: Path, words: Words, status: str, steps: int
) -> None:
    exp = made(tmp_path, turnstile := Turnstile())
    exp.step(2)
    turnstile.inside.acquire()
    for word in words:
        getattr(exp, word)()
    turnstile.open()
    exp.wait()
    assert (exp.status, exp.step_count) == (status, steps)


def test_a_resume_after_a_stop_is_refused(tmp_path: Path) -> None:
    exp, turnstile = in_a_step(tmp_path)
    exp.stop()
    with pytest.raises(RuntimeError, match=r"is being stopped, not paused; start it with run\(\)"):
        exp.resume()
    turnstile.open()
    exp.wait()
    assert (exp.status, exp.step_count) == ("stopped", 1)


def test_single_steps_of_a_run_that_is_not_paused_are_refused(tmp_path: Path) -> None:
    exp, turnstile = in_a_step(tmp_path)
    with pytest.raises(RuntimeError, match="is training; pause it before single steps"):
        exp.step()
    turnstile.open()
    exp.wait()
    assert (exp.status, exp.step_count) == ("finished", 8)


def test_a_run_after_a_pause_that_was_taken_back_is_refused(tmp_path: Path) -> None:
    """It would wait for an end that does not come."""
    exp, turnstile = in_a_step(tmp_path)
    exp.pause()
    exp.resume()
    with pytest.raises(RuntimeError, match="is training already"):
        exp.run()
    turnstile.open()
    exp.wait()
    assert exp.step_count == 8


@pytest.mark.parametrize(
    ("words", "status", "steps"),
    [
        (("resume",), "finished", 8),
        (("resume", "pause"), "paused", 1),
        (("resume", "stop"), "stopped", 1),
        (("step",), "paused", 2),
        (("step", "step"), "paused", 3),
    ],
)
def test_what_comes_as_a_run_has_decided_to_pause_is_not_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: Words,
    status: str,
    steps: int,
) -> None:
    exp, turnstile = in_a_step(tmp_path)
    end, ended, may_end = exp._training.end, threading.Event(), threading.Event()

    def held() -> None:
        monkeypatch.undo()
        ended.set()
        may_end.wait()
        end()

    monkeypatch.setattr(exp._training, "end", held)
    exp.pause()
    turnstile.open()
    ended.wait()
    for word in words:
        getattr(exp, word)()
    may_end.set()
    exp.wait()
    assert (exp.status, exp.step_count) == (status, steps)


def test_an_autocast_around_a_step_that_waits_holds_in_it(tmp_path: Path) -> None:
    """It is begun by the thread of the run before."""
    exp = made(tmp_path, turnstile := Turnstile())
    seen: list[bool] = []
    turnstile.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    exp.run()
    turnstile.inside.acquire()
    exp.pause()
    with torch.autocast("cpu"):
        exp.step()
    turnstile.open()
    exp.wait()
    assert seen == [False, True]


@pytest.mark.parametrize("what", ["pause", "stop", "learning_rate"])
@pytest.mark.parametrize("kind", [RunStarted, StatusChanged])
def test_an_observer_may_wait_for_the_caller(tmp_path: Path, what: str, kind: type[Event]) -> None:
    """The start and the end of a run are reported with nothing locked that others need."""
    exp = made(tmp_path, nn.Linear(6, 3))

    def ask() -> None:
        if what == "learning_rate":
            exp.learning_rate = 0.5
        else:
            getattr(exp, what)()

    asked: list[bool] = []
    said: list[str] = []

    def observe(event: Event) -> None:
        if isinstance(event, kind) and exp.status not in said:
            said.append(exp.status)
            thread = threading.Thread(target=ask, daemon=True)
            thread.start()
            thread.join(20)
            asked.append(not thread.is_alive())

    exp.subscribe(observe)
    exp.run()
    wait_until(lambda: not exp._runner.active)
    exp.wait()
    assert asked
    assert all(asked)
    assert what != "learning_rate" or exp.learning_rate == 0.5


def test_epochs_set_in_the_run_are_counted_from_its_start(tmp_path: Path) -> None:
    exp = made(tmp_path, turnstile := Turnstile())
    exp.run(epochs=5)
    turnstile.let_through.release(9)
    wait_until(lambda: exp.step_count == 9)  # in the third epoch
    exp.epochs = 1
    exp.epochs = 5
    turnstile.open()
    exp.wait()
    assert (exp.step_count, exp.epochs) == (20, 5)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_that_is_shortened_ends_with_the_epoch_under_way(tmp_path: Path, epochs: int) -> None:
    exp = made(tmp_path, turnstile := Turnstile())
    exp.run(epochs=5)
    turnstile.let_through.release(5)
    wait_until(lambda: exp.step_count == 5)  # in the second epoch
    exp.epochs = epochs
    turnstile.open()
    exp.wait()
    assert exp.step_count == 8


def test_a_command_that_fails_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    exp, turnstile = in_a_step(tmp_path)
    said: list[str] = []
    exp.subscribe(lambda e: said.append(e.message) if isinstance(e, StatusChanged) else None)
    exp.model = nn.Linear(6, 3, device="meta")
    del exp.optimizer.param_groups[0]["lr"]
    exp.learning_rate = 0.2
    exp.optimizer.param_groups[0]["lr"] = 0.1
    turnstile.open()
    exp.wait()
    assert (exp.status, exp.step_count) == ("finished", 8)
    assert exp.model is turnstile
    assert [
        text for text in said if text.startswith("NotImplementedError: Cannot copy out of meta")
    ]
