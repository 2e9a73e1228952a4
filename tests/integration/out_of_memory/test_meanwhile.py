"""While remedies are being tried: the failure is told already, and who acts does not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.integration.out_of_memory.support import MIB, record_of_failure
from workbench.allocator.cards import CONTEXT_BYTES
from workbench.experiment import Experiment, RunError
from workbench.experiment.events import Event, StatusChanged
from workbench.memory import memory
from workbench.memory.cards import remedies


class Slow(nn.Module):
    """Takes a while at every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256)) for _ in range(8)))
        self.head = nn.Linear(256, 10)
        self.pause_s = 0.03

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
            time.sleep(self.pause_s)
        return self.head(x)


def slow(folder: Path) -> Experiment:
    torch.manual_seed(0)
    data = torch.randn(4096, 256), torch.arange(4096) % 10
    exp = Experiment(Slow(), data, batch_size=2048, device="cpu", runs=folder)
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
    assert failed.wait(60)
    assert exp.failure is not None
    return trying


def test_the_failure_is_told_before_anything_is_tried(tmp_path: Path) -> None:
    exp = slow(tmp_path)
    trying = fail(exp)
    assert exp.status == "exception"
    assert exp.failure is not None
    assert not exp.failure.remedies
    record = record_of_failure(exp)
    assert len(record.oom_event) == 1
    assert not record.remedies
    assert trying.wait(60)
    with pytest.raises(RunError, match="Out of memory"):
        exp.wait(60)
    assert exp.failure.remedies
    assert "It would fit with" in exp.message
    assert record_of_failure(exp).remedies
    exp.close()


def test_who_stops_as_the_failure_is_told_has_nothing_tried(tmp_path: Path) -> None:
    exp = slow(tmp_path)
    said: list[str] = []

    def stop(event: Event) -> None:
        if isinstance(event, StatusChanged):
            said.append(event.message)
            if event.status == "exception":
                exp.stop()

    exp.subscribe(stop)
    exp.run(epochs=1)
    exp.wait(60)
    assert (exp.status, exp.failure) == ("stopped", None)
    assert not any("trying" in message for message in said)
    exp.close()


def ended(exp: Experiment) -> None:
    """Nothing is done any more, whatever became of the run."""
    with suppress(RunError):
        exp.wait(60)


@pytest.mark.parametrize("what", ["stop", "close", "resume", "run", "step", "pause"])
def test_who_acts_meanwhile_does_not_wait(tmp_path: Path, what: str) -> None:
    exp = slow(tmp_path)
    assert fail(exp).wait(60)
    if what in ("resume", "run", "step"):
        exp.batch_size = 128
        exp.model.pause_s = 0.0
    started = time.monotonic()
    getattr(exp, what)()
    if what in ("stop", "pause"):
        ended(exp)
    assert time.monotonic() - started < 5, "the trial under way is given up"
    ended(exp)
    wanted = {"stop": "stopped", "close": "exception", "pause": "exception", "step": "paused"}
    assert exp.status == wanted.get(what, "finished")
    assert not exp._training.rehearsing
    exp.close()


def test_modes_that_are_tried_are_not_those_of_the_experiment(tmp_path: Path) -> None:
    exp = slow(tmp_path)
    tried: list[tuple[str, str]] = []

    def note(*_: object) -> None:
        tried.append((str(exp._training.modeset), exp.modes))

    hook = exp.model.register_forward_pre_hook(note)
    fail(exp)
    ended(exp)
    hook.remove()
    assert {modes for modes, _ in tried} > {"fp32"}, "others were at work"
    assert {told for _, told in tried} == {"fp32"}
    exp.close()


def test_who_applies_a_remedy_meanwhile_waits_for_them(tmp_path: Path) -> None:
    exp = slow(tmp_path)
    assert fail(exp).wait(60)
    exp.apply_remedy()
    assert exp.failure is not None
    assert exp.failure.remedies
    exp.close()


def test_a_setting_that_changes_meanwhile_ends_the_trials(tmp_path: Path) -> None:
    exp = slow(tmp_path)
    assert fail(exp).wait(60)
    exp.modes = "bf16"
    with pytest.raises(RunError, match="Out of memory"):
        exp.wait(60)
    assert exp.modes == "bf16"
    assert any(note.startswith("Not tried: ") for note in record_of_failure(exp).notes)
    exp.close()


def test_who_looks_at_the_step_meanwhile_gets_it_with_what_helps(tmp_path: Path) -> None:
    exp = slow(tmp_path)
    assert fail(exp).wait(60)
    record = memory(exp).record
    assert record.title == record_of_failure(exp).title
    assert record.remedies == record_of_failure(exp).remedies != ()
    exp.close()


def test_what_there_was_no_time_for_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remedies, "BUDGET_S", 0.2)
    exp = slow(tmp_path)
    started = time.monotonic()
    with pytest.raises(RunError):
        exp.run(epochs=1).wait(60)
    assert time.monotonic() - started < 20
    record = record_of_failure(exp)
    said = [note for note in record.notes if note.startswith("Not tried: ")]
    assert len(said) == 1
    assert "bf16" in said[0]
    assert not any(remedy.name == "bf16" for remedy in record.remedies)
    exp.close()
