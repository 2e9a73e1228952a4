"""A learning rate that is set under a schedule of every class, held against plain PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler, swa_utils

from tests.unit.experiment.every_schedule import (
    FIRST,
    SCHEDULES,
    SECOND,
    STEPS,
    momenta,
    one_cycle,
    rates,
    sequential,
    two_groups,
)
from tests.unit.experiment.plain_loop import (
    assert_equal,
    batches,
    data,
    linear,
    plain_loop,
    seeded,
)
from workbench.experiment import Experiment
from workbench.experiment.recipe.learning_rate import (
    follow_learning_rate,
    forget_schedule,
    scale_learning_rate,
)
from workbench.experiment.recipe.schedules import Schedule


def stepped(scheduler: Any, optimizer: torch.optim.Optimizer, count: int) -> list[list[float]]:
    """Step it so many times: the rates, the momenta and what it says itself, after each."""
    found: list[list[float]] = []
    for _ in range(count):
        optimizer.step()
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(1.0)  # nothing gets better
        else:
            scheduler.step()
        said = [float(rate) for rate in scheduler.get_last_lr()]
        found.append([*rates(optimizer), *momenta(optimizer), *said])
    return found


@pytest.mark.parametrize("at", [0, 1, 5, 11, 19, 33])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_the_rest_is_that_of_a_schedule_made_for_the_new_rate(kind: str, at: int) -> None:
    """So is what it says itself; momenta are those of a schedule that nobody touched."""
    make = SCHEDULES[kind]
    optimizer = two_groups()
    scheduler = make(optimizer, 1.0)
    stepped(scheduler, optimizer, at)
    typed = 3 * rates(optimizer)[0]

    expected = two_groups(3.0)
    judge = make(expected, 3.0)
    stepped(judge, expected, at)

    scale_learning_rate(optimizer, scheduler, typed)
    assert rates(optimizer)[0] == typed
    assert rates(optimizer) == pytest.approx(rates(expected), rel=1e-12)
    said = [float(rate) for rate in scheduler.get_last_lr()]
    assert said == pytest.approx(rates(optimizer), rel=1e-12)
    for found, right in zip(
        stepped(scheduler, optimizer, STEPS - at - 1),
        stepped(judge, expected, STEPS - at - 1),
        strict=True,
    ):
        assert found == pytest.approx(right, rel=1e-9)


def test_no_class_of_torch_is_left_out() -> None:
    """A scheduler that a newer torch brings is to be looked at: it may keep rates of its own."""
    seen: set[type] = set()
    for make in SCHEDULES.values():
        waiting = [make(two_groups(), 1.0)]
        while waiting:
            one = waiting.pop()
            seen.add(type(one))
            waiting += getattr(one, "_schedulers", ())
    base = lr_scheduler.LRScheduler
    classes = {
        cls
        for module in (lr_scheduler, swa_utils)
        for cls in vars(module).values()
        if inspect.isclass(cls) and issubclass(cls, base) and not cls.__name__.startswith("_")
    }
    assert classes - {base} == seen


# -- groups, tensors, rate 0 ----------------------------------------------------------------


def test_the_rate_is_set_live_and_ratios_and_schedules_follow() -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[1].parameters()}], lr=0.01
    )
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    scale_learning_rate(optimizer, scheduler, 0.2)
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 0.02]
    optimizer.step()
    scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01]


def of_two_groups(first: Any, second: Any) -> torch.optim.Optimizer:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    groups = [
        {"params": model[0].parameters(), "lr": first},
        {"params": model[1].parameters(), "lr": second},
    ]
    return torch.optim.SGD(groups, lr=0.01)


def test_rates_that_are_tensors_stay_the_tensors_they_are() -> None:
    first, second = torch.tensor(0.125), torch.tensor(0.0625)
    optimizer = of_two_groups(first, second)
    scale_learning_rate(optimizer, None, 0.5)
    assert rates(optimizer) == [0.5, 0.25]
    assert optimizer.param_groups[0]["lr"] is first, "what holds the tensor sees no new rate"
    assert optimizer.param_groups[1]["lr"] is second


def test_one_tensor_that_two_groups_share_is_set_once() -> None:
    shared = torch.tensor(0.25)
    optimizer = of_two_groups(shared, shared)
    scale_learning_rate(optimizer, None, 0.5)
    assert rates(optimizer) == [0.5, 0.5]
    assert float(shared) == 0.5


def test_a_tensor_next_to_a_number() -> None:
    optimizer = of_two_groups(0.5, torch.tensor(0.25))
    scale_learning_rate(optimizer, None, 0.125)
    assert rates(optimizer) == [0.125, 0.0625]


@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_a_rate_set_while_a_warm_up_is_at_0_keeps_the_ratios(kind: Callable[[float], Any]) -> None:
    """The first group's rate becomes the value; the schedule goes on from rates of that size."""
    optimizer = of_two_groups(kind(0.5), kind(0.125))
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 2))
    assert rates(optimizer) == [0.0, 0.0]
    scale_learning_rate(optimizer, scheduler, 0.25)
    assert rates(optimizer) == [0.25, 0.0625]
    seen: list[list[float]] = []
    for _ in range(3):
        optimizer.step()
        scheduler.step()
        seen.append(rates(optimizer))
    assert seen == [[0.125, 0.03125], [0.25, 0.0625], [0.25, 0.0625]]


def test_a_rate_of_0_without_a_schedule_to_go_by() -> None:
    optimizer = of_two_groups(0.0, 0.0)
    scale_learning_rate(optimizer, None, 0.5)
    assert rates(optimizer) == [0.5, 0.5]


def frozen_backbone(head: float = 1e-3) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)))
    groups = [
        {"params": model[0].parameters(), "lr": 0.0},
        {"params": model[1].parameters(), "lr": head},
    ]
    return model, torch.optim.SGD(groups, lr=0.1)


OVER_TWO: dict[str, Callable[[torch.optim.Optimizer], Any] | None] = {
    "none": None,
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.5),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 3),
}


@pytest.mark.parametrize("kind", OVER_TWO)
def test_a_backbone_at_0_stays_at_0_and_the_rate_is_the_heads(tmp_path: Path, kind: str) -> None:
    """As of a schedule made for ten times the rate of the head."""

    def made(optimizer: torch.optim.Optimizer) -> Any:
        make = OVER_TWO[kind]
        return None if make is None else make(optimizer)

    expected, judged = frozen_backbone(1e-2)
    judge = made(judged)
    right: list[list[float]] = []
    losses = plain_loop(
        expected, batches(data()), judged, epochs=2,
        before_update=lambda: right.append(rates(judged)),
        after_epoch=lambda: judge and judge.step(),
    )  # fmt: skip
    model, optimizer = frozen_backbone()
    exp = Experiment(
        model, data(), optimizer=optimizer, scheduler=made(optimizer), schedule_every="epoch",
        batch_size=16, shuffle=False, runs=tmp_path, device="cpu", epochs=2,
    )  # fmt: skip
    assert exp.lr == 1e-3
    exp.lr = 1e-2
    assert (exp.lr, rates(optimizer)) == (1e-2, [0.0, 1e-2])
    assert exp.message.endswith("; parameter group 0 stays at 0")
    if judge:
        assert exp.schedule is not None
        assert f"{exp.schedule.name} goes on at 10 times its rates" in exp.message
    exp.run(wait=True)
    exp.close()
    assert exp.scalars.since("train/learning_rate", 0)[1].tolist() == pytest.approx(
        [both[1] for both in right], rel=1e-12
    )
    assert exp.scalars.since("train/loss", 0)[1].tolist() == pytest.approx(losses, rel=1e-6)
    assert rates(optimizer) == pytest.approx(rates(judged), rel=1e-12)
    assert torch.equal(model[0].weight, expected[0].weight), "the backbone was trained"


def test_a_warm_up_over_a_backbone_at_0_is_set_by_the_head(tmp_path: Path) -> None:
    """Both groups are at 0 then, and only one of them for good."""
    model, optimizer = frozen_backbone()
    exp = Experiment(
        model, data(), optimizer=optimizer, batch_size=16, runs=tmp_path, device="cpu",
        scheduler=lambda o: lr_scheduler.LambdaLR(o, lambda step: min(1.0, step / 2)),
    )  # fmt: skip
    exp.lr = 1e-2
    assert exp.message == (
        "step 0: lr 1e-2 for the next step; LambdaLR is at 0 and continues as one created with it; "
        "parameter group 0 stays at 0"
    )
    assert rates(optimizer) == [0.0, 1e-2]
    exp.run(steps=3, wait=True)
    exp.close()
    assert exp.scalars.since("train/learning_rate", 0)[1].tolist() == [1e-2, 5e-3, 1e-2]
    assert rates(optimizer)[0] == 0.0


@pytest.mark.parametrize("has_schedule", [False, True])
def test_groups_that_were_all_made_for_0_have_what_is_set_and_it_is_said(
    tmp_path: Path, has_schedule: bool
) -> None:
    def halved(optimizer: torch.optim.Optimizer) -> Any:
        return lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)

    model, optimizer = frozen_backbone(0.0)
    exp = Experiment(
        model, data(), optimizer=optimizer, batch_size=16, runs=tmp_path, device="cpu", epochs=2,
        scheduler=halved if has_schedule else None,
    )  # fmt: skip
    exp.lr = 0.5
    assert rates(optimizer) == [0.5, 0.5]
    goes_on = " for the next epoch; LambdaLR is at 0 and continues as one created with it"
    assert exp.message == (
        f"step 0: lr 5e-1{goes_on if has_schedule else ''}; all 2 parameter groups were at 0 and "
        "have it now"
    )
    exp.run(wait=True)
    exp.close()
    assert rates(optimizer) == ([0.125, 0.125] if has_schedule else [0.5, 0.5])


def test_what_ranks_report_leaves_a_backbone_at_0() -> None:
    _, optimizer = frozen_backbone()
    follow_learning_rate(optimizer, 5e-4)
    assert rates(optimizer) == [0.0, 5e-4]


@pytest.mark.parametrize("rate", [0.125, torch.tensor(0.125)])
def test_a_rate_set_between_runs_is_a_plain_loops(tmp_path: Path, rate: Any) -> None:
    def adam(model: nn.Module) -> torch.optim.Optimizer:
        own = rate.clone() if isinstance(rate, torch.Tensor) else rate
        return torch.optim.Adam(model.parameters(), lr=own, foreach=False)

    expected, model = seeded(linear), seeded(linear)
    optimizer = adam(expected)
    losses = plain_loop(expected, batches(data()), optimizer)
    if isinstance(rate, torch.Tensor):
        optimizer.param_groups[0]["lr"].fill_(0.25)
    else:
        optimizer.param_groups[0]["lr"] = 0.25
    losses += plain_loop(expected, batches(data()), optimizer)
    exp = Experiment(
        model, data(), optimizer=adam(model), batch_size=16, shuffle=False, runs=tmp_path,
        device="cpu",
    )  # fmt: skip
    exp.run(epochs=1, wait=True)
    exp.lr = 0.25
    assert exp.learning_rate == 0.25
    exp.run(epochs=1, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == losses
    assert_equal(model, expected)


def test_rates_that_are_tensors_stay_tensors_under_a_schedule() -> None:
    optimizer = two_groups(kind=torch.tensor)
    scheduler = sequential(optimizer, 1.0)
    tensors = [group["lr"] for group in optimizer.param_groups]
    stepped(scheduler, optimizer, 7)
    scale_learning_rate(optimizer, scheduler, 0.75)
    stepped(scheduler, optimizer, 7)
    pairs = zip(optimizer.param_groups, tensors, strict=True)
    assert all(group["lr"] is one for group, one in pairs)


def advanced(schedule: Schedule, optimizer: torch.optim.Optimizer, count: int) -> list[list[float]]:
    found: list[list[float]] = []
    for _ in range(count):
        optimizer.step()
        schedule.advance()
        found.append(rates(optimizer))
    return found


@pytest.mark.parametrize("in_sequence", [False, True])
def test_a_cosine_at_its_end_goes_on_as_one_made_for_the_rate(in_sequence: bool) -> None:
    """At 0 its next rate builds on the last one, which what was set is not."""

    def make(optimizer: torch.optim.Optimizer) -> Schedule:
        cosine = lr_scheduler.CosineAnnealingLR(optimizer, 10)
        if not in_sequence:
            return Schedule(("step", cosine), optimizer)
        parts = [lr_scheduler.ConstantLR(optimizer, 0.5, 4), cosine]
        return Schedule(("step", lr_scheduler.SequentialLR(optimizer, parts, [4])), optimizer)

    at = 14 if in_sequence else 10
    optimizer, expected = two_groups(), two_groups(0.5)
    schedule, judge = make(optimizer), make(expected)
    assert advanced(schedule, optimizer, at)[-1] == [0.0, 0.0]
    advanced(judge, expected, at)
    assert scale_learning_rate(optimizer, schedule.scheduler, FIRST / 2) is None
    assert rates(optimizer) == [FIRST / 2, SECOND / 2]
    found, right = advanced(schedule, optimizer, 12), advanced(judge, expected, 12)
    for one, other in zip(found, right, strict=True):
        assert one == pytest.approx(other, rel=1e-9)


def test_a_cycle_that_begins_at_0_rises_to_the_rate() -> None:
    optimizer = two_groups()
    cycle = lr_scheduler.CyclicLR(optimizer, 0.0, [0.4, 0.2], 4, cycle_momentum=False)
    assert rates(optimizer) == [0.0, 0.0]
    scale_learning_rate(optimizer, cycle, 0.8)
    assert rates(optimizer) == [0.8, 0.4]
    seen = [one[:2] for one in stepped(cycle, optimizer, 4)]
    assert seen == [pytest.approx([0.2 * at, 0.1 * at]) for at in (1, 2, 3, 4)]


def test_what_ranks_report_leaves_the_schedule_as_it_is() -> None:
    """A warm-up that is at 0 there too: the ratios come back with the rates."""
    optimizer = two_groups()
    scheduler = one_cycle(optimizer, 1.0)
    kept = {key: optimizer.param_groups[1][key] for key in ("initial_lr", "max_lr", "min_lr")}
    for reported in (0.25, 0.0, 0.125):
        follow_learning_rate(optimizer, reported)
        assert rates(optimizer) == pytest.approx([reported, reported / 4])
    assert {key: optimizer.param_groups[1][key] for key in kept} == kept
    assert scheduler.base_lrs == pytest.approx([FIRST / 25, SECOND / 25])


@pytest.mark.parametrize("kind", ["one cycle", "swa", "sequential", "cyclic", "plateau"])
def test_a_schedule_made_after_one_was_removed_starts_from_the_rate(kind: str) -> None:
    optimizer = two_groups()
    schedule = Schedule(("step", SCHEDULES[kind](optimizer, 1.0)), optimizer)
    stepped(schedule.scheduler, optimizer, 9)
    kept, momentum = rates(optimizer), momenta(optimizer)
    schedule.end()
    assert (schedule.scheduler, schedule.every, schedule.describe()) == (None, None, "")
    assert advanced_not_at_all(schedule, optimizer) == kept
    assert momenta(optimizer) == momentum
    later = lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    assert later.base_lrs == kept


def advanced_not_at_all(schedule: Schedule, optimizer: torch.optim.Optimizer) -> list[float]:
    optimizer.step()
    assert schedule.after_step() == schedule.after_epoch(lambda: 1.0) == ""
    return rates(optimizer)


def test_what_an_optimizer_has_of_its_own_is_no_schedules() -> None:
    """Some have an option ``min_lr``."""

    class Own(torch.optim.SGD):
        def __init__(self, params: Any) -> None:
            super().__init__(params, lr=0.5)
            self.defaults["min_lr"] = 0.25
            for group in self.param_groups:
                group["min_lr"] = 0.25

    optimizer = Own(nn.Linear(2, 2).parameters())
    scheduler = lr_scheduler.StepLR(optimizer, 3)
    scale_learning_rate(optimizer, scheduler, 1.0)
    assert optimizer.param_groups[0]["min_lr"] == 0.25
    forget_schedule(optimizer)
    assert optimizer.param_groups[0]["min_lr"] == 0.25
    assert "initial_lr" not in optimizer.param_groups[0]
