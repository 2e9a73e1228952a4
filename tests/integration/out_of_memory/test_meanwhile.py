"""While remedies are being tried: the failure is told already, and who acts does not wait."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.integration.out_of_memory.support import MIB, record_of_failure
from tests.waiting import wait_until
from workbench.allocator.simulator.gpus import CONTEXT_BYTES
from workbench.experiment import Experiment, RunError
from workbench.experiment.report.events import Event, StatusChanged
from workbench.memory import memory
from workbench.memory.simulated_gpu import remedies


class Layers(nn.Module):
    """Says when it is through a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64)) for _ in range(8)))
        self.head = nn.Linear(64, 10)
        self.through: Callable[[], object] = int

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
            self.through()
        return self.head(x)


class Held:
    """Keeps the first trial of a remedy at its first layer for as long as it may not go on."""

    def __init__(self, exp: Experiment, may_go_on: Callable[[], bool]) -> None:
        self.begun = threading.Event()
        self.layers_since = 0
        """That were computed in trials since they could go on."""
        self._training, self._may_go_on = exp._training, may_go_on
        exp.model.through = self._through

    def _through(self) -> None:
        if not self._training.rehearsing:
            return
        if self.begun.is_set():
            self.layers_since += 1
        else:
            self.begun.set()
            wait_until(self._may_go_on)


def made(folder: Path) -> Experiment:
    torch.manual_seed(0)
    data = torch.randn(16384, 64), torch.arange(16384) % 10
    exp = Experiment(Layers(), data, batch_size=8192, device="cpu", runs=folder)
    exp.card = CONTEXT_BYTES + 40 * MIB
    return exp


def when(exp: Experiment, said: Callable[[StatusChanged], bool]) -> threading.Event:
    """Set once the experiment says so."""
    event = threading.Event()

    def heard(told: Event) -> None:
        if isinstance(told, StatusChanged) and said(told):
            event.set()

    exp.subscribe(heard)
    return event


def fail(exp: Experiment) -> threading.Event:
    """Run until it has failed; what is given is set once a remedy is being tried."""
    failed = when(exp, lambda told: told.status == "exception")
    trying = when(exp, lambda told: "trying" in told.message)
    exp.run(epochs=1)
    assert failed.wait(120)
    assert exp.failure is not None
    return trying


def test_the_failure_is_told_before_anything_is_tried(tmp_path: Path) -> None:
    exp = made(tmp_path)
    may_go_on = threading.Event()
    held = Held(exp, may_go_on.is_set)
    trying = fail(exp)
    assert held.begun.wait(120)
    assert exp.status == "exception"
    assert exp.failure is not None
    assert not exp.failure.remedies
    record = record_of_failure(exp)
    assert len(record.oom_event) == 1
    assert not record.remedies
    assert trying.wait(120)
    may_go_on.set()
    with pytest.raises(RunError, match="Out of memory"):
        exp.wait(120)
    assert exp.failure.remedies
    assert "It would fit with" in exp.message
    assert record_of_failure(exp).remedies
    exp.close()


def test_who_stops_as_the_failure_is_told_has_nothing_tried(tmp_path: Path) -> None:
    exp = made(tmp_path)
    said: list[str] = []

    def stop(event: Event) -> None:
        if isinstance(event, StatusChanged):
            said.append(event.message)
            if event.status == "exception":
                exp.stop()

    exp.subscribe(stop)
    exp.run(epochs=1)
    exp.wait(120)
    assert (exp.status, exp.failure) == ("stopped", None)
    assert not any("trying" in message for message in said)
    exp.close()


def ended(exp: Experiment) -> None:
    """Nothing is done any more, whatever became of the run."""
    with suppress(RunError):
        exp.wait(120)


@pytest.mark.parametrize("what", ["stop", "close", "resume", "run", "step", "pause"])
def test_who_acts_meanwhile_does_not_wait(tmp_path: Path, what: str) -> None:
    exp = made(tmp_path)
    held = Held(exp, lambda: bool(exp._runner.halted) or exp._runner._trials_cancelled)
    assert fail(exp).wait(120)
    assert held.begun.wait(120)
    if what in ("resume", "run", "step"):
        exp.batch_size = 512
    getattr(exp, what)()
    if what in ("stop", "pause"):
        ended(exp)
    assert held.layers_since <= 1, "the trial under way is given up"
    ended(exp)
    wanted = {"stop": "stopped", "close": "exception", "pause": "exception", "step": "paused"}
    assert exp.status == wanted.get(what, "finished")
    assert not exp._training.rehearsing
    exp.close()


def test_modes_that_are_tried_are_not_those_of_the_experiment(tmp_path: Path) -> None:
    exp = made(tmp_path)
    tried: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    """A list that a hook appends to is put back after a trial."""

    def note(*_: object) -> None:
        tried.put((str(exp._training.modeset), exp.modes))

    hook = exp.model.register_forward_pre_hook(note)
    fail(exp)
    ended(exp)
    hook.remove()
    heard = [tried.get_nowait() for _ in range(tried.qsize())]
    assert {modes for modes, _ in heard} > {"fp32"}, "others were at work"
    assert {told for _, told in heard} == {"fp32"}
    exp.close()


def test_who_applies_a_remedy_meanwhile_waits_for_them(tmp_path: Path) -> None:
    exp = made(tmp_path)
    assert fail(exp).wait(120)
    exp.apply_remedy()
    assert exp.failure is not None
    assert exp.failure.remedies
    exp.close()


def test_a_setting_that_changes_meanwhile_ends_the_trials(tmp_path: Path) -> None:
    exp = made(tmp_path)
    are_others = threading.Event()
    held = Held(exp, are_others.is_set)
    assert fail(exp).wait(120)
    assert held.begun.wait(120)
    exp.modes = "bf16"
    are_others.set()
    with pytest.raises(RunError, match="Out of memory"):
        exp.wait(120)
    assert exp.modes == "bf16"
    assert any(note.startswith("Not tried: ") for note in record_of_failure(exp).notes)
    exp.close()


def test_who_looks_at_the_step_meanwhile_gets_it_with_what_helps(tmp_path: Path) -> None:
    exp = made(tmp_path)
    assert fail(exp).wait(120)
    record = memory(exp).record
    assert record.title == record_of_failure(exp).title
    assert record.remedies == record_of_failure(exp).remedies != ()
    exp.close()


def test_what_there_was_no_time_for_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remedies, "BUDGET_S", 0.2)
    exp = made(tmp_path)
    held = Held(exp, lambda: time.sleep(0.3) is None)
    with pytest.raises(RunError):
        exp.run(epochs=1).wait(120)
    assert held.layers_since <= 1, "the trial under way is given up"
    record = record_of_failure(exp)
    said = [note for note in record.notes if note.startswith("Not tried: ")]
    assert len(said) == 1
    assert "bf16" in said[0]
    assert not any(remedy.name == "bf16" for remedy in record.remedies)
    exp.close()
