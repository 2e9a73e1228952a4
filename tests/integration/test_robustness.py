"""A run that meets a fault outside the step still ends, says so, and can go on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from tests.integration.support import our_threads
from workbench.experiment import Experiment, RunError
from workbench.experiment.data.data import to_device
from workbench.experiment.loop.scalars import ScalarLog
from workbench.experiment.loop.step_guard import Guard, NonFiniteError
from workbench.experiment.recipe.learning_rate import scale_learning_rate
from workbench.experiment.recipe.losses import Loss
from workbench.experiment.report.run_directory import RunFolder


def data(count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 6, generator=generator), torch.arange(count) % 3


def make(tmp_path: Path, model: nn.Module | None = None, **options: Any) -> Experiment:
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    return Experiment(model, data(), batch_size=16, runs=tmp_path, device="cpu", **options)


def test_a_device_that_can_no_longer_be_read_does_not_leave_the_run_hanging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exp = make(tmp_path)

    def broken(_self: ScalarLog) -> int:
        raise RuntimeError("CUDA error: device-side assert triggered")

    with monkeypatch.context() as patched:
        patched.setattr(ScalarLog, "flush", broken)
        exp.run(epochs=1)
        exp.wait(120)
    assert exp.status == "finished"
    assert not our_threads()
    exp.run(epochs=1, wait=True)
    assert exp.step_count == 8
    assert len(exp.scalars.since("train/loss", 0)[0]) == 8


def test_the_users_error_is_told_where_putting_the_state_back_fails_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(logits: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
        raise ValueError("the user's own mistake")

    def broken(_self: Guard) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    exp = make(tmp_path, loss=loss)
    monkeypatch.setattr(Guard, "restore", broken)
    exp.run(epochs=1)
    with pytest.raises(RunError, match="the user's own mistake"):
        exp.wait(120)
    assert exp.status == "exception"
    assert exp.failure is not None
    assert exp.failure.message == "the user's own mistake"


def test_a_nan_that_cannot_be_looked_into_still_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object) -> None:
        raise MemoryError("no room for a second look")

    monkeypatch.setattr("workbench.experiment.runtime.runner.nan_failure", broken)
    exp = make(tmp_path, loss=lambda logits, labels: logits.mean() * float("nan"))
    exp.run(epochs=1)
    with pytest.raises(RunError, match="loss is NaN"):
        exp.wait(120)
    assert exp.status == "nan"
    assert exp.failure is not None
    assert exp.failure.message == "loss is NaN"


def test_a_state_that_cannot_be_saved_is_said_and_ends_nothing(tmp_path: Path) -> None:
    class Locked(nn.Linear):
        def get_extra_state(self) -> Any:
            return threading.Lock()  # cannot be pickled

    exp = make(tmp_path, Locked(6, 3))
    exp.run(epochs=1, wait=True)
    assert exp.status == "finished"
    assert "no checkpoint was written" in exp.message
    assert not list(exp.path.glob("checkpoints/*"))


def test_a_repeated_validation_adds_no_step_past_the_end(tmp_path: Path) -> None:
    broken = [True]

    class Picky(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if broken and not self.training:
                raise ValueError("not in eval mode")
            return super().forward(x)

    torch.manual_seed(0)
    exp = Experiment(Picky(6, 3), data(), val=data(), batch_size=16, runs=tmp_path, device="cpu")
    exp.run(epochs=1)
    with pytest.raises(RunError, match="not in eval mode"):
        exp.wait(120)
    assert exp.status == "exception"
    broken.clear()
    exp.resume_from_failure()
    exp.wait(120)
    assert exp.status == "finished"
    assert (exp.step_count, exp.epoch) == (4, 1)


class Ends(lr_scheduler.LambdaLR):
    """A scheduler of the user's own that raises past its end."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer, lambda step: 0.9**step)

    def step(self, epoch: int | None = None) -> None:
        if self.last_epoch >= 5:
            raise ValueError("no rate past step 5")
        super().step(epoch)


def test_a_scheduler_that_raises_does_not_apply_a_batch_twice(tmp_path: Path) -> None:
    exp = make(tmp_path, scheduler=Ends, schedule_every="step")
    exp.run(steps=4, wait=True)
    with pytest.raises(ValueError, match="no rate past step 5"):
        exp.run(steps=4, wait=True)
    moments = exp.optimizer.state[next(exp.model.parameters())]
    assert exp.step_count == int(moments["step"])  # what was applied is counted
    assert exp.failure is not None
    assert f"those of step {exp.step_count}." in exp.failure.subtitle
    assert len(exp.scalars.since("train/loss", 0)[0]) == exp.step_count


def test_a_sequence_of_schedules_follows_a_swap_and_a_new_rate(tmp_path: Path) -> None:
    def schedule(optimizer: torch.optim.Optimizer) -> Any:
        parts: list[Any] = [lr_scheduler.ExponentialLR(optimizer, 0.5) for _ in range(2)]
        return lr_scheduler.SequentialLR(optimizer, parts, milestones=[100])

    exp = make(tmp_path, optimizer=lambda p: torch.optim.SGD(p, lr=0.8), scheduler=schedule)
    exp.run(epochs=1, wait=True)
    assert exp.learning_rate == pytest.approx(0.4)
    exp.model = nn.Linear(6, 3)
    exp.run(epochs=1, wait=True)
    assert exp.learning_rate == pytest.approx(0.2)


def test_a_group_that_lost_its_parameters_keeps_its_place_in_the_schedule(tmp_path: Path) -> None:
    def groups(parameters: Any) -> torch.optim.Optimizer:
        first, *rest = list(parameters)
        return torch.optim.SGD([{"params": [first], "lr": 0.4}, {"params": rest}], lr=0.2)

    exp = make(
        tmp_path, optimizer=groups, scheduler=lambda o: lr_scheduler.LambdaLR(o, lambda _: 0.5)
    )
    exp.run(epochs=1, wait=True)
    exp.model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    exp.run(epochs=1, wait=True)
    assert [group["lr"] for group in exp.optimizer.param_groups] == pytest.approx([0.2, 0.1])


def test_a_rate_set_by_hand_outlives_the_next_step_of_one_cycle() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=100)
    for _ in range(40):
        optimizer.step()
        scheduler.step()
    before = float(optimizer.param_groups[0]["lr"])
    scale_learning_rate(optimizer, scheduler, before / 10)
    optimizer.step()
    scheduler.step()
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(before / 10, rel=0.05)


def test_labels_per_token_are_scored_and_other_shapes_are_left_alone(tmp_path: Path) -> None:
    def own(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    logits = torch.zeros(2, 4, 3)
    logits[..., 1] = 1
    labels = torch.ones(2, 4, dtype=torch.long)
    loss = Loss(own)
    loss.check(logits, labels)
    answers = loss.answers.read(logits, labels)
    assert answers is not None
    assert [int(number) for number in answers.tally()] == [8, 8]
    assert Loss("cross_entropy").answers.read(torch.zeros(2, 5, 3), torch.zeros(2, 7)) is None

    class Tokens(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).reshape(len(x), 2, 5)

    exp = Experiment(
        Tokens(6, 10),
        (torch.randn(32, 6), torch.zeros(32, 7)),
        loss=lambda logits, _labels: logits.square().mean(),
        runs=tmp_path,
        device="cpu",
    )
    exp.run(epochs=1, wait=True)
    assert exp.status == "finished"


def test_a_thawed_parameter_is_clipped_and_checked(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].requires_grad_(False)
    exp = make(
        tmp_path,
        model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        clip_grad_norm=1e-3,
    )
    exp.run(steps=1, wait=True)
    model[0].requires_grad_(True)
    before = model[0].weight.detach().clone()
    exp.run(steps=1, wait=True)
    moved = float((model[0].weight.detach() - before).norm())
    assert 0 < moved <= 1e-3 * 1.01


def test_gradients_of_another_kind_in_a_later_branch_are_looked_at_too() -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Embedding(4, 2, sparse=True)])
    guard = Guard(model, torch.device("cpu"))
    guard.remember()
    model[0](torch.ones(1, 2)).sum().backward()
    guard.check_gradients(scaled=False)
    model[1](torch.tensor([1])).sum().backward()
    guard.check_gradients(scaled=False)
    gradient = model[1].weight.grad
    assert gradient is not None
    gradient._values()[0, 0] = float("inf")
    with pytest.raises(NonFiniteError):
        guard.check_gradients(scaled=False)


def test_a_named_tuple_in_a_batch_keeps_its_type() -> None:
    class Inputs(NamedTuple):
        image: torch.Tensor
        mask: torch.Tensor

    moved = to_device(Inputs(torch.ones(1), torch.ones(2)), torch.device("meta"))
    assert isinstance(moved, Inputs)
    assert moved.mask.device.type == "meta"


def test_a_folder_that_could_not_be_made_never_becomes_an_earlier_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = RunFolder(tmp_path, "net")
    assert earlier.write({"name": "net", "step": 7})
    kept = (earlier.path / "run.json").read_text()

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", full)
        later = RunFolder(tmp_path, "net")
    assert "No space left" in later.problem
    assert later.write({"name": "net", "step": 0})  # the disk has recovered
    assert (earlier.path / "run.json").read_text() == kept
    assert later.path != earlier.path


def test_an_experiment_is_collected_while_its_runner_holds_its_lock(tmp_path: Path) -> None:
    exp = make(tmp_path)
    gate, collect, held = exp._runner._gate, exp._collected, threading.Event()
    let_go = threading.Event()

    def hold() -> None:
        with gate:
            held.set()
            let_go.wait(300)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(120)
    collector = threading.Thread(target=collect)  # as the garbage collector may, on any thread
    collector.start()
    collector.join(120)
    waited = collector.is_alive()
    let_go.set()
    holder.join(120)
    collector.join(120)
    assert not waited
