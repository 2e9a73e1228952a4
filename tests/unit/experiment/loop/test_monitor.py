"""The metric that a training goes by: judged by a plain loop that counts epochs itself."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.unit.experiment.experiments import experiment, losses, sgd
from tests.unit.experiment.plain_loop import batches, data, linear, plain_loop, seeded
from workbench.experiment.experiment import Experiment
from workbench.experiment.loop.monitor import direction
from workbench.experiment.runtime.weights import load_weights

HELD_OUT = data(48, seed=9)


def fast(parameters: Any) -> torch.optim.Optimizer:
    """So fast that the loss of validation soon rises."""
    return torch.optim.SGD(parameters, lr=2.0, momentum=0.9)


def stopped_by_hand(patience: int, epochs: int) -> tuple[list[float], list[float], nn.Module, int]:
    """A plain loop with the few lines for early stopping that everybody writes."""
    model = seeded(linear)
    found: list[float] = []
    best, worse, at, kept = math.inf, 0, 0, copy.deepcopy(model)

    class Stop(Exception):  # noqa: N818 - it ends the loop, and is no error
        pass

    def after_epoch() -> None:
        nonlocal best, worse, at, kept
        with torch.no_grad():
            found.append(F.cross_entropy(model(HELD_OUT[0]), HELD_OUT[1]).item())
        if found[-1] < best:
            best, worse, at, kept = found[-1], 0, len(found), copy.deepcopy(model)
        else:
            worse += 1
        if worse >= patience:
            raise Stop

    of_steps: list[float] = []
    optimizer = fast(model.parameters())
    torch.manual_seed(0)
    try:
        for _ in range(epochs):
            of_steps += plain_loop(model, batches(data()), optimizer)
            after_epoch()
    except Stop:
        pass
    return of_steps, found, kept, at


@pytest.mark.parametrize("patience", [1, 2, 4])
def test_a_run_ends_where_a_plain_loop_would(tmp_path: Path, patience: int) -> None:
    of_steps, of_epochs, kept, at = stopped_by_hand(patience, epochs=40)
    assert len(of_epochs) < 40, "or nothing is shown"
    exp = experiment(
        tmp_path, seeded(linear), val=HELD_OUT, optimizer=fast, patience=patience,
        monitor="val/loss", batch_size=16,
    )  # fmt: skip
    exp.run(epochs=40, wait=True)
    assert exp.status == "finished"
    assert losses(exp) == of_steps
    steps, values = exp.scalars.since("val/loss", 0)
    assert values.tolist() == pytest.approx(of_epochs, rel=1e-6)
    assert exp.best is not None
    assert (exp.best.epoch, exp.best.step) == (at, steps[at - 1])
    assert exp.best.value == min(values)
    assert f"for {patience:,} epochs" in exp.message or patience == 1, exp.message
    exp.close()
    best = experiment(tmp_path, seeded(linear), val=HELD_OUT, optimizer=fast)
    best.resume_from(exp.path, "best", fork=True)
    for own, judge in zip(best.model.parameters(), kept.parameters(), strict=True):
        assert torch.equal(own, judge)
    best.close()


def test_another_run_goes_on_from_there(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear), val=HELD_OUT, optimizer=fast, patience=1)
    exp.run(epochs=50, wait=True)
    ended = exp.epoch
    assert ended < 50
    exp.run(epochs=1, wait=True)
    assert exp.epoch == ended + 1, "at least the epoch that was asked for"
    exp.close()


def test_a_pause_and_a_resume_do_not_begin_to_count_anew(tmp_path: Path) -> None:
    def epochs(*, paused: bool) -> int:
        exp = experiment(
            tmp_path, seeded(linear), val=HELD_OUT, optimizer=fast, patience=3, monitor="val/loss"
        )
        end = exp.on("epoch", lambda _event: exp.pause()) if paused else lambda: None
        exp.run(epochs=50)
        exp.wait()
        while exp.status == "paused":
            exp.resume().wait()
        end()
        exp.close()
        return exp.epoch

    assert epochs(paused=True) == epochs(paused=False)


def test_a_metric_of_the_users_own(tmp_path: Path) -> None:
    """Logged in a function that validation calls; it ends the run, and names the best step."""
    values = [0.2, 0.5, 0.4, 0.3, 0.9]
    exp = experiment(
        tmp_path, seeded(linear), val=HELD_OUT, monitor=("val/mine", "max"), patience=2
    )
    exp.on("validated", lambda event: exp.log("val/mine", values[event.epoch - 1]))
    exp.run(epochs=5, wait=True)
    assert exp.epoch == 4
    assert exp.best == ("val/mine", 0.5, 8, 2)
    assert "val/mine has not been better than 0.5, of epoch 2, for 2 epochs" in exp.message
    assert exp.scalars.since("val/mine", 0)[1].tolist() == values[:4]
    exp.close()


def test_one_that_is_not_logged_is_reported_once(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear), monitor="val/f1", patience=1)
    exp.run(epochs=3, wait=True)
    assert exp.epoch == 3
    assert sum("val/f1 was not logged" in note for note in exp.notes) == 1, exp.notes
    exp.close()


def test_a_schedule_goes_by_it(tmp_path: Path) -> None:
    """Judged by the same scheduler, which is fed by hand."""
    values = [0.5, 0.4, 0.3, 0.6, 0.2, 0.1]
    model, rates = linear(), list[float]()
    judge = sgd(model.parameters())
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(judge, "max", patience=1)
    for value in values:
        plateau.step(value)
        rates.append(judge.param_groups[0]["lr"])

    def follows(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=1)

    exp = experiment(
        tmp_path, seeded(linear), val=HELD_OUT, monitor=("mine", "max"), scheduler=follows
    )
    found: list[float | None] = []
    exp.on("validated", lambda event: exp.log("mine", values[event.epoch - 1]))
    exp.on("epoch", lambda _event: found.append(exp.learning_rate))
    exp.run(epochs=len(values), wait=True)
    assert found == rates
    assert len(set(rates)) > 1
    exp.close()


def test_a_schedule_of_the_other_direction_goes_by_the_loss(tmp_path: Path) -> None:
    def follows(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", patience=0)

    exp = experiment(
        tmp_path, seeded(linear), val=HELD_OUT, monitor="val/accuracy", scheduler=follows
    )
    exp.run(epochs=3, wait=True)
    scheduler: Any = exp.scheduler
    assert scheduler.best == min(exp.scalars.since("val/loss", 0)[1])
    exp.close()


def test_nan_is_never_the_best(tmp_path: Path) -> None:
    values = [math.nan, 0.5, math.nan]
    exp = experiment(tmp_path, seeded(linear), monitor=("mine", "min"))
    exp.on("epoch", lambda event: exp.log("mine", values[event.epoch - 1]))
    exp.run(epochs=3, wait=True)
    assert exp.best == ("mine", 0.5, 8, 2)
    exp.close()


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("val/loss", "min"), ("val/accuracy", "max"), ("val/f1", "max"), ("val/macro_f1", "max"),
        ("AUROC", "max"), ("error", "min"), ("val/top5", "max"), ("val/R2", "max"),
    ],
)  # fmt: skip
def test_most_names_say_whether_more_is_better(name: str, mode: str) -> None:
    assert direction(name) == (name, mode)


@pytest.mark.parametrize("name", ["val/mine", "val/loss_accuracy", "", "val/lossy", "f1/mine"])
def test_others_are_refused_with_what_to_write(name: str) -> None:
    with pytest.raises(ValueError, match="'max'"):
        direction(name)
    assert direction((name, "min")) == (name, "min")


def test_what_is_no_metric_is_refused(tmp_path: Path) -> None:
    for wrong in (3, object()):
        with pytest.raises(TypeError, match="valid: the name of a metric"):
            direction(wrong)
    for wrong in (("val/f1",), ("val/f1", "up"), (1, "max")):
        with pytest.raises(ValueError, match="valid: the name of a metric"):
            direction(wrong)
    with pytest.raises(ValueError, match="nothing to go by"):
        Experiment(linear(), data(), patience=3, runs=tmp_path)
    with pytest.raises(ValueError, match="patience"):
        Experiment(linear(), data(), HELD_OUT, patience=0, runs=tmp_path)


def test_it_can_be_set_while_a_run_is_paused(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear), val=HELD_OUT, optimizer=fast)
    exp.run(epochs=2, wait=True)
    assert (exp.monitor, exp.patience) == (None, None)
    assert exp.best is not None
    assert exp.best.name == "val/accuracy"
    exp.monitor, exp.patience = "val/loss", 1
    assert (exp.monitor, exp.patience, exp.best) == (("val/loss", "min"), 1, None)
    exp.run(epochs=30, wait=True)
    assert exp.epoch < 32
    with pytest.raises(ValueError, match="patience"):
        exp.patience = -1
    exp.close()


def test_without_validation_a_schedule_goes_by_what_the_end_of_an_epoch_logs(
    tmp_path: Path,
) -> None:
    values = [0.5, 0.4, 0.3, 0.6]

    def follows(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=0)

    exp = experiment(tmp_path, seeded(linear), monitor=("mine", "max"), scheduler=follows)
    exp.on("epoch", lambda event: exp.log("mine", values[event.epoch - 1]))
    exp.run(epochs=4, wait=True)
    scheduler: Any = exp.scheduler
    assert scheduler.best == 0.6
    assert exp.learning_rate == pytest.approx(0.1 * 0.1**2)
    assert not [note for note in exp.notes if "mine" in note]
    exp.close()


def test_the_best_on_disk_is_of_the_end_of_an_epoch(tmp_path: Path) -> None:
    """However lucky a single batch was whose step has a checkpoint, too."""
    exp = experiment(tmp_path, seeded(linear), monitor=("mine", "max"), checkpoint_every=1)

    def stepped(event: Any) -> None:
        exp._runner.wait_for_checkpoint()
        exp.log("mine", 1.0 if event.step == 2 else -abs(event.step - 8))

    exp.on("step", stepped)
    run = exp.run(epochs=4, wait=True)
    exp.close()
    assert exp.best == ("mine", 0.0, 8, 2)
    assert load_weights(linear(), run, "best").step == 8


def test_a_fork_has_the_best_of_before(tmp_path: Path) -> None:
    values = [0.9, 0.1, 0.2]
    exp = experiment(tmp_path, seeded(linear), val=HELD_OUT, monitor=("mine", "max"))
    exp.on("validated", lambda event: exp.log("mine", values[event.epoch - 1]))
    first = exp.run(epochs=2, wait=True)
    exp.close()
    fork = experiment(tmp_path, seeded(linear), val=HELD_OUT, monitor=("mine", "max"))
    fork.resume_from(first, fork=True)
    fork.on("validated", lambda event: fork.log("mine", values[event.epoch - 1]))
    run = fork.run(epochs=1, wait=True)
    fork.close()
    assert fork.best == ("mine", 0.9, 4, 1)
    assert load_weights(linear(), run, "best").step == 4
    assert run.path != first.path


def test_a_metric_of_validation_takes_validation(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="takes val"):
        experiment(tmp_path, linear(), monitor="val/loss", patience=2)
    exp = experiment(tmp_path, linear())
    with pytest.raises(ValueError, match="nothing to go by"):
        exp.patience = 2
    exp.close()
