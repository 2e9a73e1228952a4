"""What a checkpoint holds, and that writing one leaves the training as it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.saved_training import last_checkpoint, part
from tests.unit.experiment.plain_loop import (
    CLASSES,
    FEATURES,
    assert_equal,
    batches,
    data,
    evaluated,
    linear,
    plain_loop,
    seeded,
    weights,
)
from workbench.experiment import Experiment
from workbench.experiment.checkpoint import folder
from workbench.experiment.loop.stop_condition import Plan
from workbench.experiment.runtime import checkpoint_writer
from workbench.experiment.runtime.checkpoint_writer import contents
from workbench.torch_private import tensor_files

_VAL = data(64, seed=2)


class ScheduleFree(torch.optim.Optimizer):
    """SGD after Defazio et al., 2024 (arXiv 2405.15682): gradients at y, evaluation at x.

    Parameters hold y in train mode and x in eval mode; z is the state. The way there and back is
    ``lerp``, which rounds.
    """

    def __init__(self, parameters: Any, lr: float = 0.5, beta: float = 0.9) -> None:
        super().__init__(parameters, {"lr": lr, "beta": beta, "k": 0, "train_mode": False})
        self.said: list[str] = []

    def train(self) -> None:
        self.said.append("train")
        self._go(to_train=True)

    def eval(self) -> None:
        self.said.append("eval")
        self._go(to_train=False)

    @torch.no_grad()
    def _go(self, *, to_train: bool) -> None:
        for group in self.param_groups:
            if group["train_mode"] is to_train:
                continue
            weight = 1 - group["beta"] if to_train else 1 - 1 / group["beta"]
            for parameter in group["params"]:
                if "z" in self.state[parameter]:
                    parameter.lerp_(self.state[parameter]["z"], weight)
            group["train_mode"] = to_train

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if not group["train_mode"]:
                raise RuntimeError("not in train mode: call optimizer.train()")
            group["k"] += 1
            share, rate, beta = 1 / group["k"], group["lr"], group["beta"]
            for y in group["params"]:
                if y.grad is None:
                    continue
                z = self.state[y].setdefault("z", y.clone())
                y.lerp_(z, share)
                y.add_(y.grad, alpha=rate * (beta * (1 - share) - 1))
                z.sub_(y.grad, alpha=rate)


class Net(nn.Module):
    """Batch norm and dropout, which a checkpoint must not move either."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Dropout(0.2))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def schedule_free(model: nn.Module) -> ScheduleFree:
    return ScheduleFree(model.parameters())


def by_hand(
    model: nn.Module, epochs: int = 3, *, val: bool = True
) -> tuple[list[float], list[float], ScheduleFree]:
    """As the authors of schedule-free optimizers ask for: train(), an epoch, eval(), validation."""
    optimizer, found = schedule_free(model), list[float]()
    optimizer.train()

    def validate() -> None:
        if val:
            optimizer.eval()
            found.append(evaluated(model, batches(_VAL, 64))[0])
            optimizer.train()

    losses = plain_loop(model, batches(data()), optimizer, epochs=epochs, after_epoch=validate)
    return losses, found, optimizer


def experiment(folder: Path, model: nn.Module, **options: Any) -> Experiment:
    settings = {"optimizer": schedule_free(model), "val": _VAL, "batch_size": 16}
    return Experiment(
        model, data(), shuffle=False, runs=folder, device="cpu", **(settings | options)
    )


def values(exp: Experiment, name: str) -> list[float]:
    return exp.scalars.since(name, 0)[1].tolist()


def in_file(exp: Experiment, name: str) -> dict[str, torch.Tensor]:
    return part(last_checkpoint(exp.path), name)


def kept(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict((*model.named_parameters(), *model.named_buffers()))


@pytest.mark.parametrize("made", [linear, Net])
def test_a_schedule_free_optimizer_validates_and_saves_the_weights_that_are_evaluated(
    tmp_path: Path, made: Callable[[], nn.Module]
) -> None:
    expected, model = seeded(made), seeded(made)
    right, val_losses, optimizer = by_hand(expected)
    exp = experiment(tmp_path, model)
    exp.run(epochs=3, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == right
    found = exp.scalars.since("val/loss", 0)[1].tolist()
    assert found == pytest.approx(val_losses, rel=1e-6)
    assert_equal(model, expected)  # the training's own: those of train mode, to the last bit
    optimizer.eval()
    evaluated_weights = in_file(exp, "evaluated")
    right_weights = {name: value.data for name, value in expected.named_parameters()}
    torch.testing.assert_close(evaluated_weights, right_weights, rtol=0, atol=0)


@pytest.mark.parametrize("made", [linear, Net])
def test_from_a_checkpoint_training_goes_on_to_the_last_bit(
    tmp_path: Path, made: Callable[[], nn.Module]
) -> None:
    whole = experiment(tmp_path / "whole", seeded(made))
    whole.run(epochs=4, wait=True)
    whole.close()
    exp = experiment(tmp_path, seeded(made))
    exp.run(epochs=2, wait=True)
    exp.close()
    model = seeded(made)
    again = experiment(tmp_path, model)
    again.resume_from(exp.path)
    again.run(epochs=2, wait=True)
    again.close()
    assert again.path == exp.path
    assert_equal(model, whole.model)
    for name in ("train/loss", "val/loss"):
        assert values(again, name) == values(whole, name)


@pytest.mark.parametrize("period_s", [0.0, 1e9])
def test_checkpoints_in_the_course_of_a_run_change_no_bit_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, period_s: float
) -> None:
    """Many or none: the same losses and weights, those of a loop that writes none."""
    monkeypatch.setattr(checkpoint_writer, "PERIOD_S", period_s)
    expected, model = seeded(Net), seeded(Net)
    right, _, _ = by_hand(expected, 6, val=False)
    exp = experiment(tmp_path, model, val=None)
    for _ in range(3):
        exp.run(epochs=2, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == right
    assert_equal(model, expected)


def test_weights_in_training_are_the_same_to_the_last_bit_after_a_snapshot(tmp_path: Path) -> None:
    model = seeded(Net)
    exp = experiment(tmp_path, model, val=None)
    exp.run(steps=7, wait=True)
    optimizer: Any = exp._training.optimizer
    before, random = weights(model), torch.get_rng_state()
    state = {key: value["z"].clone() for key, value in optimizer.state.items()}
    for _ in range(3):
        found = contents(exp._training, Plan())
        torch.testing.assert_close(weights(model), before, rtol=0, atol=0)
        assert optimizer.param_groups[0]["train_mode"] is True
        assert all(torch.equal(state[key], value["z"]) for key, value in optimizer.state.items())
        assert torch.equal(torch.get_rng_state(), random)
        assert all(module.training for module in model.modules())
    assert torch.equal(found.tensors["model.head.weight"], before["head.weight"])
    assert not torch.equal(found.tensors["evaluated.head.weight"], before["head.weight"])
    exp.close()


def test_weights_come_back_where_a_copy_fails(tmp_path: Path) -> None:
    model = seeded(Net)
    exp = experiment(tmp_path, model, val=None)
    exp.run(steps=3, wait=True)
    before, optimizer = weights(model), exp._training.optimizer

    def fails() -> None:
        raise RuntimeError("an eval of the user's own")

    optimizer.eval = fails  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="of the user's own"):
        contents(exp._training, Plan())
    del optimizer.eval  # type: ignore[attr-defined]
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)
    assert optimizer.param_groups[0]["train_mode"] is True
    exp.close()


def test_a_snapshot_before_the_first_step_leaves_the_optimizer_alone(tmp_path: Path) -> None:
    model = seeded(Net)
    optimizer = schedule_free(model)
    exp = experiment(tmp_path, model, optimizer=optimizer)
    found = contents(exp._training, Plan())
    assert all(
        torch.equal(found.tensors[f"model.{name}"], one) for name, one in kept(model).items()
    )
    assert optimizer.said == []
    exp.close()


def test_an_ordinary_optimizers_checkpoint_is_the_training_itself(tmp_path: Path) -> None:
    model = seeded(Net)
    exp = experiment(tmp_path, model, optimizer="sgd")
    exp.run(epochs=1, wait=True)
    exp.close()
    right = {name: tensor.data for name, tensor in kept(model).items()}
    torch.testing.assert_close(in_file(exp, "model"), right, rtol=0, atol=0)


def test_of_two_checkpoints_at_once_one_is_written_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that is so slow that nobody waits any longer."""
    monkeypatch.setattr(checkpoint_writer, "PERIOD_S", 0.0)
    monkeypatch.setattr(checkpoint_writer.CheckpointWriter.join, "__defaults__", (0.0,))
    write, may_go_on, at_once = folder.write, threading.Event(), threading.Semaphore(1)
    together: list[Any] = []

    def slow(*given: Any) -> Any:
        if not at_once.acquire(blocking=False):
            together.append(given)
        may_go_on.wait()
        found = write(*given)
        at_once.release()
        return found

    monkeypatch.setattr(folder, "write", slow)
    exp = experiment(tmp_path, seeded(linear))
    exp.run(epochs=1, wait=True)
    exp.run(steps=1, wait=True)
    assert exp.message.endswith("until it is whole the newest is the one before")
    may_go_on.set()
    writer = exp._runner._checkpoints
    writer.join(100)
    assert not together
    assert last_checkpoint(exp.path)["step"] == exp.step_count
    exp.close()


def test_a_write_that_failed_is_tried_again_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_writer, "PERIOD_S", 0.0)
    write, failed = tensor_files.write_tensors, threading.Event()

    def full_once(*given: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise OSError(28, "No space left on device")
        return write(*given)

    monkeypatch.setattr(tensor_files, "write_tensors", full_once)
    exp = experiment(tmp_path, seeded(linear))
    exp.run(epochs=1, wait=True)
    assert failed.is_set()
    assert last_checkpoint(exp.path)["step"] == exp.step_count
    assert "No space" not in exp.message
    assert [
        path for path in (exp.path / "checkpoints").iterdir() if path.name.startswith(".")
    ] == []
    exp.close()


def test_the_last_two_the_best_and_those_that_are_pinned_stay(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear), optimizer="sgd", checkpoint_every=2)
    run = exp.run(steps=1, wait=True)
    folders = run.path / "checkpoints"
    (pinned,) = folders.iterdir()
    (pinned / checkpoint_writer.PINNED).touch()
    exp.run(epochs=4, wait=True)
    exp.close()
    found = folder.found_in(folders)
    best = checkpoint_writer.best_of(found)
    assert pinned in {one.path for one in found}
    assert len(found) == len({*(one.path for one in found[:2]), pinned, best and best.path})
    assert found[0].step == exp.step_count


@pytest.mark.parametrize("every", ["10", "ten minutes", "-1 s", "0 s", "inf s", 0, -3, 2.5])
def test_an_interval_that_is_none_is_refused_with_those_that_are(
    tmp_path: Path, every: Any
) -> None:
    with pytest.raises((TypeError, ValueError), match="checkpoint_every"):
        experiment(tmp_path, seeded(linear), checkpoint_every=every)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("every", ["0.01 s", 3])
def test_checkpoints_are_written_as_often_as_was_set(tmp_path: Path, every: Any) -> None:
    exp = experiment(tmp_path, seeded(linear), checkpoint_every=every, val=None)
    exp.run(steps=7, wait=True)
    exp.close()
    steps = [one.step for one in folder.found_in(exp.path / "checkpoints")]
    assert steps[0] == 7
    assert len(steps) == 2
