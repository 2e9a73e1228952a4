"""A checkpoint takes a training to where another was, exactly, in one process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from tests.integration.parallel.support import EarlyExit, Net, losses, made, moments
from workbench.parallel.state import load, save


def resting(experiment: Any) -> Any:
    training = experiment._training
    training.random.restore()
    training.detach_modes()
    return training


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "rmsprop", "adagrad"])
def test_who_goes_on_from_a_checkpoint_goes_on_to_the_bit(optimizer: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "optimizer": optimizer,
        "scheduler": lambda made: ("step", lr_scheduler.StepLR(made, 3, 0.5))[1],
        "modes": "bf16",
    }
    first = made(tmp_path / "runs", EarlyExit, **settings)
    first.run(steps=16, wait=True)
    save(resting(first), tmp_path / "there")
    first._training.random.save()
    second = made(tmp_path / "runs", EarlyExit, **settings)
    second.run(steps=3, wait=True)  # of which nothing may be left
    load(resting(second), tmp_path / "there")
    second._training.random.save()
    assert second.step_count == 16
    torch.testing.assert_close(moments(second), moments(first), rtol=0, atol=0)
    for experiment in (first, second):
        experiment.run(steps=14, wait=True)
    assert torch.equal(losses(first)[-14:], losses(second)[-14:])
    for ours, plain in zip(second.model.parameters(), first.model.parameters(), strict=True):
        assert torch.equal(ours, plain)
    assert second._training.cursor.position() == first._training.cursor.position()


def test_random_states_come_back(tmp_path: Path) -> None:
    training = resting(made(tmp_path / "runs"))
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    save(training, tmp_path / "there")
    drawn = random.random(), np.random.rand(), torch.rand(())
    load(training, tmp_path / "there")
    assert (random.random(), np.random.rand(), torch.rand(())) == drawn


def test_a_parameter_no_step_has_reached_has_no_moments_before_or_after(tmp_path: Path) -> None:
    first = made(tmp_path / "runs", EarlyExit, optimizer="adamw")
    first.run(steps=4, wait=True)
    save(resting(first), tmp_path / "there")
    second = made(tmp_path / "runs", EarlyExit, optimizer="adamw")
    second.run(steps=13, wait=True)
    assert ("blocks.1.up.weight", "exp_avg") in moments(second)
    load(resting(second), tmp_path / "there")
    assert moments(second).keys() == moments(first).keys()
    assert ("blocks.1.up.weight", "exp_avg") not in moments(second)


def test_half_a_checkpoint_is_none(tmp_path: Path) -> None:
    training = resting(made(tmp_path / "runs", Net))
    save(training, tmp_path / "there")
    (tmp_path / "there" / "rest.pt").unlink()
    with pytest.raises(FileNotFoundError, match="holds no whole checkpoint"):
        load(training, tmp_path / "there")
    save(training, tmp_path / "there")  # what is broken is replaced
    load(training, tmp_path / "there")


def falling(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.ExponentialLR(optimizer, 0.5)


@pytest.mark.parametrize("where", ["here", "there", "nowhere"])
def test_a_schedule_that_was_taken_away_does_not_come_back(tmp_path: Path, where: str) -> None:
    """There before the checkpoint; or here, while the training was away."""
    there, here = (made(tmp_path / "runs", lr=0.016, scheduler=falling) for _ in range(2))
    there.run(steps=16, wait=True)  # an epoch and some
    if where == "there":
        there.scheduler = None
    save(resting(there), tmp_path / "there")
    if where == "here":
        here.scheduler = None
    training = resting(here)
    load(training, tmp_path / "there")
    training.random.save()
    scheduler: Any = here.scheduler
    if where == "nowhere":
        assert scheduler.last_epoch == 1
    else:
        assert scheduler is None
        assert "initial_lr" not in here.optimizer.param_groups[0]
    assert here.learning_rate == 0.008
    here.run(epochs=1, wait=True)
    assert here.learning_rate == (0.004 if where == "nowhere" else 0.008)
