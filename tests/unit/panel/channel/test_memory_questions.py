"""A question about another batch: the capture learns how it grows, once, and keeps it."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.experiment.services import Services, only
from workbench.memory import MemoryProbe
from workbench.panel.channel import background_work, memory_questions
from workbench.panel.channel.commands import CommandError
from workbench.panel.channel.memory_questions import ask
from workbench.records import GROWTHS, MemoryRecord

UNKNOWN = GROWTHS.index("unknown")


@pytest.fixture
def exp(tmp_path: Path):
    """A bare one: questions are the only thing that is asked of it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10))
    data = torch.randn(40, 16), torch.arange(40) % 10
    with only(Services()):
        found = Experiment(model, data, batch_size=16, runs=tmp_path)
    found.run(steps=1, wait=True)
    yield found
    found.close()


def captured(exp: Experiment) -> str:
    handle = exp.capture(MemoryProbe())
    handle.wait()
    assert handle.capture_id
    return handle.capture_id


def row_of(exp: Experiment, capture: str, **row: object) -> dict[str, object]:
    question = {"kind": "what_if", "rows": [{"settings": "", **row}]}
    return ask(exp, {"capture": capture, "question": question}).make().fields["answer"]["rows"][0]


def held(exp: Experiment, capture: str) -> MemoryRecord:
    return exp.captures.get(capture)


def test_another_batch_is_answered_without_an_interval(exp):
    capture = captured(exp)
    row = row_of(exp, capture, batch=1 << 20)
    assert row["peak_low"] == row["peak_high"] > 0
    assert not (held(exp, capture).block_growth == UNKNOWN).any(), "the capture has learned it"
    assert row_of(exp, capture, batch=2 << 20)["peak_low"] > row["peak_high"]


def test_a_question_about_the_recorded_batch_runs_nothing(exp):
    capture = captured(exp)
    before = held(exp, capture)
    row_of(exp, capture)
    row_of(exp, capture, batch=16)
    assert held(exp, capture) is before


def test_what_is_no_question_of_a_batch_is_refused_as_ever(exp):
    capture = captured(exp)
    with pytest.raises(ValueError, match="rows is a list"):
        ask(exp, {"capture": capture, "question": {"kind": "what_if", "rows": 3}}).make()
    with pytest.raises(CommandError, match="no longer held"):
        ask(exp, {"capture": "gone", "question": {}})


GATE = threading.Event()
"""Open, or every step of `Gated` is under way until it is."""
GATE.set()
ENTERED = threading.Event()
"""A step has begun."""


class Gated(nn.Module):
    """Steps that take as long as a test wants."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ENTERED.set()
        GATE.wait(300)
        return x


def assembled(folder: Path) -> Experiment:
    """One with nothing but itself to hold on to."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), Gated(), nn.Linear(64, 10))
    data = torch.randn(40, 16), torch.arange(40) % 10
    with only(Services()):
        found = Experiment(model, data, batch_size=16, runs=folder)
    found.run(steps=1, wait=True)
    return found


@pytest.fixture
def slow(tmp_path: Path):
    """One in the middle of a step, of which a capture was made before."""
    found = assembled(tmp_path / "slow")
    capture = captured(found)
    GATE.clear()
    ENTERED.clear()
    found.run(steps=1, wait=False)
    assert ENTERED.wait(120)
    yield found, capture
    GATE.set()
    found.close()


def asked(exp: Experiment, capture: str) -> tuple[threading.Event, list[background_work.Done]]:
    """Ask about another batch, aside."""
    over, found = threading.Event(), list[background_work.Done]()
    question = {"kind": "what_if", "rows": [{"settings": "", "batch": 1 << 20}]}

    def done(what: background_work.Done) -> None:
        found.append(what)
        over.set()

    task = ask(exp, {"capture": capture, "question": question})
    background_work.start(task, "client", 1, exp.id, done)
    return over, found


def test_an_experiment_in_a_long_step_keeps_no_other_waiting(exp, slow):
    waits, _ = asked(*slow)
    answered, found = asked(exp, captured(exp))
    assert answered.wait(120)
    assert found[0].error == ""
    assert not waits.is_set()
    GATE.set()
    assert waits.wait(120)


def test_a_step_that_lasts_too_long_is_answered_with_an_interval(slow, monkeypatch):
    """And what would have been found out does not keep the training waiting later."""
    monkeypatch.setattr(memory_questions, "LONGEST_WAIT_S", 0.2)
    exp, capture = slow
    over, found = asked(exp, capture)
    assert over.wait(120)
    assert found[0].error == ""
    answer = found[0].answer
    assert answer is not None
    row = answer.fields["answer"]["rows"][0]
    assert row["peak_low"] < row["peak_high"]
    GATE.set()
    exp.wait()
    assert (held(exp, capture).block_growth == UNKNOWN).any()


def test_a_question_that_waits_keeps_no_experiment(tmp_path):
    exp = assembled(tmp_path)
    question = {"kind": "what_if", "rows": [{"settings": "", "batch": 1 << 20}]}
    task = ask(exp, {"capture": captured(exp), "question": question})
    left = weakref.ref(exp)
    exp.close()
    del exp
    gc.collect()
    assert left() is None
    row = task.make().fields["answer"]["rows"][0]
    assert row["peak_low"] < row["peak_high"], "as far as the record alone knows"
