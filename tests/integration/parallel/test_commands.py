"""Commands to workers while they train, and what they report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.integration.parallel.support import losses, made, until, until_reported
from workbench.modes.layout.layout import Layout
from workbench.parallel.exchange.stream import Message
from workbench.parallel.session.session import Session


@pytest.fixture
def session_and_messages(
    tmp_path: Path, forked_ranks: None
) -> Iterator[tuple[Session, list[Message]]]:
    experiment = made(tmp_path / "runs", lr=0.01)
    experiment.run(steps=2, wait=True)
    training = experiment._training
    training.random.restore()
    session = Session.send(
        training, tmp_path / "parallel", Layout.parse("fsdp:2"), until(1_000_000)
    )
    messages: list[Message] = []
    try:
        yield session, messages
        session.bring_back(training)
        training.random.save()
        # every step once, in its order, and the state is that of the last one reported
        reported = [step for one in messages if one["type"] == "scalars" for step in steps_of(one)]
        assert reported == list(range(3, training.step_count + 1))
        stayed = made(tmp_path / "runs", lr=0.01)
        stayed.run(steps=4, wait=True)
        torch.testing.assert_close(
            torch.tensor(losses_reported(messages)[:2]),
            losses(stayed)[2:].float(),
            rtol=1e-6,
            atol=0,
        )
    finally:
        session.close()


def steps_of(message: Message) -> list[int]:
    return [step for name, steps, _ in message["series"] if name == "train/loss" for step in steps]


def losses_reported(messages: list[Message]) -> list[float]:
    return [
        value
        for one in messages
        if one["type"] == "scalars"
        for name, _, values in one["series"]
        if name == "train/loss"
        for value in values
    ]


def test_a_rate_and_recall(session_and_messages: tuple[Session, list[Message]]) -> None:
    session, messages = session_and_messages
    assert until_reported(session, "ready", messages)["ranks"] == 2
    assert session.folder.path.stat().st_mode & 0o077 == 0, "others may put a program here"
    until_reported(session, "position", messages)
    session.command("learning_rate", value=0.5)
    while not (executed := until_reported(session, "position", messages))["commands"]:
        pass
    assert executed["rate"] == 0.5, "what is reported as executed is"
    session.command("recall")
    assert until_reported(session, "end", messages)["how"] == "recalled"
    assert session.wait(120) == 0
    rates = [
        (step, value)
        for one in messages
        if one["type"] == "scalars"
        for name, steps, values in one["series"]
        if name == "train/learning_rate"
        for step, value in zip(steps, values, strict=True)
    ]
    changed = next(step for step, rate in rates if rate == 0.5)
    assert {rate for step, rate in rates if step < changed} == {0.01}
    assert {rate for step, rate in rates if step >= changed} == {0.5}
    assert changed <= executed["step"] + 1


def test_a_plan_made_shorter_ends_it(session_and_messages: tuple[Session, list[Message]]) -> None:
    session, messages = session_and_messages
    step = until_reported(session, "position", messages)["step"]
    session.command("plan", until_step=step + 150, until_epoch=None)
    end = until_reported(session, "end", messages)
    assert end["how"] == "finished"
    assert [one["step"] for one in messages if one["type"] == "saved"][-1] == step + 150
