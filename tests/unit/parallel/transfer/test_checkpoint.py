"""A checkpoint takes a training to where another was, exactly, in one process."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset

from tests.integration.parallel.support import EarlyExit, Net, losses, made, moments
from workbench.experiment.state.value_snapshots import MOST_ELEMENTS
from workbench.parallel.data.rank_batches import RankSource
from workbench.parallel.transfer.checkpoint import NotLoadedError, _SealedReader, load, save


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


class Counted(Dataset[Any]):
    """It counts its samples, and makes a generator for the first one."""

    def __init__(self) -> None:
        self.calls, self.cache = 0, list[int]()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, row: int) -> Any:
        if self.calls == 0:
            self.random = np.random.default_rng(0)
        self.calls += 1
        return torch.randn(16), row % 4


def test_what_a_data_set_keeps_comes_back_beside_a_generator_made_there(tmp_path: Path) -> None:
    there, here = (
        resting(made(tmp_path / "runs", data=DataLoader(Counted(), 4))) for _ in range(2)
    )
    source = there.cursor.source = RankSource(there.cursor.source, 0, 1)
    data = source.whole.loader.dataset
    data[0]
    data.random.random()
    source.drawn_from.refresh()
    save(there, tmp_path / "there")
    load(here, tmp_path / "there")
    local = here.cursor.source.loader.dataset
    assert local.calls == 1
    assert local.random.random() == data.random.random()
    assert not any("brought back" in note for note in here.board.notes)
    data.cache.extend(range(MOST_ELEMENTS + 1))
    save(there, tmp_path / "there")
    load(here, tmp_path / "there")
    assert any(
        note.startswith("Counted.cache changed on the ranks and could not be brought back")
        for note in here.board.notes
    )


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


WIDTHS = itertools.count(2)


class WithBuffer(Net):
    """Its forward makes a buffer, of another shape under another seed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", None)
        self.width = next(WIDTHS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = x.detach().mean(dim=0)[: self.width]
        result: torch.Tensor = super().forward(x)
        return result


def test_half_a_checkpoint_is_none(tmp_path: Path) -> None:
    training = resting(made(tmp_path / "runs", Net))
    save(training, tmp_path / "there")
    (tmp_path / "there" / "rest.pt").unlink()
    with pytest.raises(FileNotFoundError, match="holds no whole checkpoint"):
        load(training, tmp_path / "there")
    save(training, tmp_path / "there")  # what is broken is replaced
    load(training, tmp_path / "there")


@pytest.mark.parametrize("how", ["gone", "cut", "its last overwritten", "a pipe", "no table"])
def test_of_a_checkpoint_whose_tensors_are_not_all_there_none_is_loaded(
    how: str, tmp_path: Path
) -> None:
    first, second = (made(tmp_path / "runs", WithBuffer, seed=seed) for seed in (0, 1))
    first.run(steps=2, wait=True)
    save(resting(first), tmp_path / "there")
    (file,) = (tmp_path / "there").glob("*.distcp")
    data = file.read_bytes()
    if how == "no table":
        (tmp_path / "there" / ".metadata").unlink()
    else:
        file.unlink()
    if how == "cut":
        file.write_bytes(data[:-1])
    elif "overwritten" in how:
        file.write_bytes(data[: data.rindex(b"PK\3\4")].ljust(len(data), b"\0"))
    elif how == "a pipe":
        os.mkfifo(file)
    second.run(steps=1, wait=True)
    kept = {name: one.clone() for name, one in second.model.state_dict().items()}
    with pytest.raises(NotLoadedError, match="checkpoint") as error:
        load(resting(second), tmp_path / "there")
    assert str(tmp_path / "there") in str(error.value)
    assert "weights_only" not in str(error.value), "torch says to have it run"
    assert second.model.state_dict().keys() == kept.keys()
    assert all(map(torch.equal, second.model.state_dict().values(), kept.values()))


def test_an_interrupt_of_reading_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch wraps it in an exception of its own, as it does everything."""
    training = resting(made(tmp_path / "runs", Net))
    save(training, tmp_path / "there")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_SealedReader, "read_data", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(training, tmp_path / "there")


def falling(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.ExponentialLR(optimizer, 0.5)


@pytest.mark.parametrize("where", ["here", "there", "nowhere"])
def test_a_schedule_that_was_removed_does_not_come_back(tmp_path: Path, where: str) -> None:
    """There before the checkpoint; or here, while the training was on ranks."""
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


class Growing(Net):
    """Keeps what it has seen in a buffer that grows, and makes another one when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bank", torch.zeros(0, 2))
        self.register_buffer("last", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bank: torch.Tensor = self.bank
        self.bank = torch.cat([bank, x.detach()[:1, :2]])
        self.last = self.bank[-1].double()
        return super().forward(x)


def test_buffers_of_another_shape_and_new_ones_come_back(tmp_path: Path) -> None:
    there, here = (made(tmp_path / "runs", Growing) for _ in range(2))
    there.run(steps=3, wait=True)
    save(resting(there), tmp_path / "there")
    load(resting(here), tmp_path / "there")
    model, right = here.model, there.model
    assert right.bank.shape == (3, 2)
    torch.testing.assert_close(model.state_dict(), right.state_dict(), rtol=0, atol=0)
    assert model.last.dtype is torch.float64


def test_each_module_comes_back_in_its_own_mode(tmp_path: Path) -> None:
    """Also in that which its author has chosen, where the model's own forward has set another."""
    there, here = (made(tmp_path / "runs", Net) for _ in range(2))
    there.model.blocks[1].eval()
    there.run(steps=3, wait=True)
    there.model.blocks[1].up.train()
    save(resting(there), tmp_path / "there")
    here.run(steps=1, wait=True)
    training = resting(here)
    load(training, tmp_path / "there")
    modes = {name: module.training for name, module in here.model.named_modules()}
    assert [name for name, mode in modes.items() if not mode] == ["blocks.1", "blocks.1.down"]
    training.train_mode.set(training.optimizer)  # as before the next epoch
    kept = len(training.train_mode.kept_in_eval)
    assert kept == len(there._training.train_mode.kept_in_eval) > 0
    assert not here.model.blocks[1].up.training
