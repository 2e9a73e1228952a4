"""What workers are told while they train, and what they tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.integration.parallel.support import losses, made, until, until_told
from workbench.modes.layout.layout import Layout
from workbench.parallel.exchange.stream import Message
from workbench.parallel.session.session import Away


@pytest.fixture
def away_and_heard(tmp_path: Path, forked_ranks: None) -> Iterator[tuple[Away, list[Message]]]:
    experiment = made(tmp_path / "runs", lr=0.01)
    experiment.run(steps=2, wait=True)
    training = experiment._training
    training.random.restore()
    away = Away.send(training, tmp_path / "parallel", Layout.parse("fsdp:2"), until(1_000_000))
    heard: list[Message] = []
    try:
        yield away, heard
        away.come_home(training)
        training.random.save()
        # every step once, in its order, and the state is that of the last one told
        told = [step for one in heard if one["type"] == "scalars" for step in steps_of(one)]
        assert told == list(range(3, training.step_count + 1))
        stayed = made(tmp_path / "runs", lr=0.01)
        stayed.run(steps=4, wait=True)
        torch.testing.assert_close(
            torch.tensor(losses_told(heard)[:2]), losses(stayed)[2:].float(), rtol=1e-6, atol=0
        )
    finally:
        away.close()


def steps_of(message: Message) -> list[int]:
    return [step for name, steps, _ in message["series"] if name == "train/loss" for step in steps]


def losses_told(heard: list[Message]) -> list[float]:
    return [
        value
        for one in heard
        if one["type"] == "scalars"
        for name, _, values in one["series"]
        if name == "train/loss"
        for value in values
    ]


def test_a_rate_and_home(away_and_heard: tuple[Away, list[Message]]) -> None:
    away, heard = away_and_heard
    assert until_told(away, "ready", heard)["ranks"] == 2
    assert away.folder.path.stat().st_mode & 0o077 == 0, "others may put a program here"
    until_told(away, "position", heard)
    away.command("learning_rate", value=0.5)
    while not (obeyed := until_told(away, "position", heard))["commands"]:
        pass
    assert obeyed["rate"] == 0.5, "what is told as carried out is"
    away.command("home")
    assert until_told(away, "end", heard)["how"] == "home"
    assert away.wait(120) == 0
    rates = [
        (step, value)
        for one in heard
        if one["type"] == "scalars"
        for name, steps, values in one["series"]
        if name == "train/learning_rate"
        for step, value in zip(steps, values, strict=True)
    ]
    changed = next(step for step, rate in rates if rate == 0.5)
    assert {rate for step, rate in rates if step < changed} == {0.01}
    assert {rate for step, rate in rates if step >= changed} == {0.5}
    assert changed <= obeyed["step"] + 1


def test_a_plan_made_shorter_ends_it(away_and_heard: tuple[Away, list[Message]]) -> None:
    away, heard = away_and_heard
    step = until_told(away, "position", heard)["step"]
    away.command("plan", until_step=step + 150, until_epoch=None)
    end = until_told(away, "end", heard)
    assert end["how"] == "finished"
    assert [one["step"] for one in heard if one["type"] == "saved"][-1] == step + 150
