"""The rates to come of a schedule: those of the real one, without a trace in the training."""

from __future__ import annotations

import copy
import functools
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from tests.unit.experiment import stateful_rates
from tests.unit.experiment.every_schedule import SCHEDULES, STEPS, rates, two_groups
from tests.unit.experiment.plain_loop import (
    assert_equal,
    batches,
    data,
    linear,
    plain_loop,
    seeded,
)
from workbench.experiment import Experiment
from workbench.experiment.loop.stop_condition import Plan
from workbench.experiment.recipe.schedule_forecast import MAX_POINTS, ScheduleForecast
from workbench.experiment.recipe.schedules import Schedule
from workbench.experiment.report.events import Event, StepDone
from workbench.records import ScheduleState

Made = Callable[[torch.optim.Optimizer], Any]


def experiment(
    folder: Path, scheduler: Any, *, every: Any = "step", epochs: int = 10, lr: float = 0.5
) -> Experiment:
    """Four steps an epoch."""
    model = seeded(linear)
    return Experiment(
        model, data(), optimizer=torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9),
        scheduler=scheduler, schedule_every=every, batch_size=16, shuffle=False, epochs=epochs,
        device="cpu", runs=folder,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look is followed by a slice."""
    here = "workbench.experiment.recipe.schedule_forecast"
    monkeypatch.setattr(f"{here}._EVERY_S", 0.0)
    monkeypatch.setattr(f"{here}._SHARE", math.inf)
    monkeypatch.setattr(f"{here}._IDLE_SHARE", math.inf)


def whole(exp: Experiment) -> ScheduleState:
    """The schedule, once all of it is computed."""
    for _ in range(10_000):
        found = exp.schedule
        assert found is not None
        if found.is_whole:
            return found
    raise AssertionError("it is never whole")


def state_of(optimizer: torch.optim.Optimizer, scheduler: Any) -> Any:
    groups = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    return copy.deepcopy((groups, scheduler.state_dict()))


class AtTwoGroups:
    """A forecast of a schedule over two groups, with the least around it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.exp = experiment(folder, None, epochs=STEPS // 4)
        self.optimizer = two_groups()
        self.scheduler = SCHEDULES[kind](self.optimizer, 1.0)
        training = self.exp._training
        training.optimizer = self.optimizer
        training.schedule = type(training.schedule)(("step", self.scheduler), self.optimizer)
        self.exp._readings._forecast = ScheduleForecast(
            training, lambda: (STEPS, STEPS // 4, STEPS)
        )

    def step(self, count: int) -> None:
        """As training does."""
        for _ in range(count):
            self.optimizer.step()
            self.exp._training.schedule.advance()
            self.exp._training.step_count += 1


@pytest.mark.parametrize("at", [0, 11])
@pytest.mark.parametrize("kind", [kind for kind in SCHEDULES if "plateau" not in kind])
def test_the_curve_is_what_the_schedule_comes_to(tmp_path: Path, kind: str, at: int) -> None:
    here = AtTwoGroups(tmp_path, kind)
    here.step(at)
    before = state_of(here.optimizer, here.scheduler)
    known = whole(here.exp)
    assert state_of(here.optimizer, here.scheduler) == before
    assert (known.start, known.end, known.size, known.every) == (at, STEPS, 1, "step")
    assert known.low == known.high
    right = []
    for _ in range(STEPS - at):
        right.append(rates(here.optimizer)[0])
        here.step(1)
    assert known.low == pytest.approx(right, rel=1e-3)
    assert (known.why, known.effect) == (
        "",
        "A rate set here holds from the next step on and scales the rest of the schedule with it.",
    )
    here.exp.close()


def test_what_is_measured_is_not_drawn(tmp_path: Path) -> None:
    exp = experiment(tmp_path, lr_scheduler.ReduceLROnPlateau, every=None)
    known = whole(exp)
    assert (known.name, known.every, known.why) == ("ReduceLROnPlateau", "epoch", "by metric")
    assert (known.low, known.end) == ((), 0)
    exp.close()


def test_without_a_schedule_there_is_none(tmp_path: Path) -> None:
    exp = experiment(tmp_path, None)
    assert exp.schedule is None
    exp.close()


def test_a_schedule_of_epochs_is_drawn_by_epochs(tmp_path: Path) -> None:
    exp = experiment(tmp_path, lambda o: lr_scheduler.StepLR(o, 2, 0.5), every=None, epochs=5)
    known = whole(exp)
    assert (known.every, known.start, known.end) == ("epoch", 0, 5)
    assert known.low == (0.5, 0.5, 0.25, 0.25, 0.125)
    exp.run(epochs=3, wait=True)
    assert whole(exp).low == (0.25, 0.125, 0.125)
    exp.close()


def test_what_a_run_would_find_out_it_counts_is_known_before(tmp_path: Path) -> None:
    """By the length, which is that of the run in steps."""
    exp = experiment(tmp_path, lambda o: lr_scheduler.CosineAnnealingLR(o, 40), every=None)
    assert (whole(exp).every, whole(exp).end) == ("step", 40)
    exp.epochs = 20
    assert (whole(exp).every, whole(exp).end) == ("epoch", 20)
    exp.close()


# -- long runs ----------------------------------------------------------------------------------


def test_a_cycle_shorter_than_a_point_is_a_band(tmp_path: Path) -> None:
    def cycle(optimizer: torch.optim.Optimizer) -> Any:
        return lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, step_size_up=5, cycle_momentum=False)

    exp = experiment(tmp_path, cycle, epochs=2_500)
    known = whole(exp)
    assert (known.end, known.size) == (10_000, 84)
    assert len(known.low) == len(known.high) == MAX_POINTS
    assert set(known.low[:-1]) == {0.1}, "the last point is of the few steps that are left"
    assert set(known.high[:-1]) == {0.5}
    exp.close()


def test_millions_of_steps_are_computed_in_slices(tmp_path: Path) -> None:
    """Each is short, ever more is drawn, and the points stay as few."""
    exp = experiment(tmp_path, lambda o: lr_scheduler.StepLR(o, 1_000_000), epochs=1_000_000)
    first = exp.schedule
    seen = [exp.schedule for _ in range(5)]
    assert first is not None
    assert (first.is_whole, first.end) == (False, 4_000_000)
    counts = [len(one.low) for one in seen if one is not None]
    assert counts == sorted(counts)
    assert 1 <= counts[-1] < MAX_POINTS
    exp.close()


class Clock:
    """Seconds that pass when they are said to."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


clock = Clock()


def patched(monkeypatch: pytest.MonkeyPatch, before: Callable[[], object]) -> None:
    """Have something done before every step of a schedule: of a copy, or of the one that trains."""
    advance = Schedule.advance

    def slowed(self: Schedule) -> str:
        before()
        return advance(self)

    monkeypatch.setattr(Schedule, "advance", slowed)


def decays(step: int) -> float:
    return 0.9**step


@pytest.mark.parametrize("status", ["idle", "training"])
def test_slices_that_take_long_are_rare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: Any
) -> None:
    """Whatever a call of the user's function takes, all of them take a share of the time."""
    monkeypatch.undo()
    monkeypatch.setattr("workbench.experiment.recipe.schedule_forecast.time", clock)

    def takes_long() -> None:
        clock.now += 0.05

    patched(monkeypatch, takes_long)
    exp = experiment(tmp_path, lambda o: lr_scheduler.LambdaLR(o, decays))
    exp._training.board.status, exp._runner.plan = status, Plan(until_epoch=10)
    begun, known = clock.now, exp.schedule
    while known is None or not known.is_whole:
        clock.now += 0.1
        known = exp.schedule
    took = 39 * 0.05
    share = took / (clock.now - begun)
    assert share == pytest.approx(0.5 if status == "idle" else 0.05, rel=0.3)
    exp._training.board.status = "idle"
    exp.close()


def test_it_is_computed_once_until_rate_plan_or_schedule_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exp = experiment(tmp_path, lambda o: lr_scheduler.LambdaLR(o, decays))
    calls: list[int] = []
    patched(monkeypatch, lambda: calls.append(1))

    def computed() -> int:
        before = len(calls)
        for _ in range(5):
            whole(exp)
        return len(calls) - before

    assert computed() == 39
    assert computed() == 0
    exp.lr = 0.25
    assert computed() == 39
    assert whole(exp).low[:2] == (0.25, 0.225)
    exp.epochs = 5
    assert computed() == 19
    exp.optimizer.param_groups[0]["lr"] = 0.125  # by hand, which the schedule does not know of
    assert computed() == 19
    assert whole(exp).low[:2] == (0.125, 0.225)
    exp.scheduler = None
    assert exp.schedule is None
    exp.close()


def test_it_is_computed_once_in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same curve while the steps of it are done."""
    exp = experiment(tmp_path, lambda o: lr_scheduler.LambdaLR(o, decays))
    found: list[ScheduleState | None] = []

    def look(event: Event) -> None:
        if isinstance(event, StepDone):
            found.append(exp.schedule)

    exp.subscribe(look, every_step=True)
    calls: list[int] = []
    patched(monkeypatch, lambda: calls.append(1))
    exp.run(wait=True)
    whole_ones = {one for one in found if one is not None and one.is_whole}
    assert len(whole_ones) == 1
    assert len(next(iter(whole_ones)).low) > 30
    assert len(calls) < 2 * 40, "its own steps, and those of one copy"
    exp.close()


# -- nothing is touched ---------------------------------------------------------------------


def test_a_run_that_is_looked_at_has_a_plain_loops_numbers(tmp_path: Path) -> None:
    expected = seeded(linear)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.5, momentum=0.9)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=41)
    losses = plain_loop(expected, batches(data()), optimizer, epochs=10, after_step=scheduler.step)
    exp = experiment(tmp_path, lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=41))
    exp.subscribe(lambda event: exp.schedule, every_step=True)
    exp.run(wait=True)
    assert exp.scalars.since("train/loss", 0)[1].tolist() == losses
    assert_equal(exp.model, expected)
    exp.close()


def test_rates_from_an_iterator_are_still_all_there(tmp_path: Path) -> None:
    """A function of a cell that takes the next rate whenever it is called."""

    def made(optimizer: torch.optim.Optimizer) -> Any:
        left = iter([1.0, 0.5, 0.25, 0.125, 0.5])
        return lr_scheduler.LambdaLR(optimizer, lambda _step: next(left))

    exp = experiment(tmp_path, made, epochs=1)
    assert whole(exp).low == (0.5, 0.25, 0.125, 0.0625)
    exp.run(wait=True)
    assert exp.scalars.since("train/learning_rate", 0)[1].tolist() == [0.5, 0.25, 0.125, 0.0625]
    exp.close()


def test_rates_from_a_generator_cannot_be_known(tmp_path: Path) -> None:
    def numbers() -> Iterator[float]:
        while True:
            yield 0.5

    def made(optimizer: torch.optim.Optimizer) -> Any:
        left = numbers()
        return lr_scheduler.LambdaLR(optimizer, lambda _step: next(left))

    exp = experiment(tmp_path, made)
    known = whole(exp)
    assert known.why.startswith("no curve: the schedule cannot be copied (")
    assert "generator" in known.why
    assert known.low == ()
    exp.close()


DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.rand(())),
    "random": random.random,
    "random, from a function": lambda: 2 * random.random(),
    "numpy": np.random.random_sample,
}


@pytest.mark.parametrize("library", DRAWS)
def test_what_its_functions_draw_is_put_back(tmp_path: Path, library: str) -> None:
    draw = DRAWS[library]
    exp = experiment(
        tmp_path, lambda o: lr_scheduler.LambdaLR(o, lambda step: draw()), epochs=9_999
    )
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    known = whole(exp)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert known.why == "no curve: its functions draw random numbers"
    assert known.low == ()
    exp.close()


def test_large_things_that_a_function_looks_at_are_not_copied(tmp_path: Path) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(40, 3)), 1)
    table, model = torch.full((200_000,), 0.5), nn.Linear(2, 2)
    place = table.data_ptr()

    class Factors:
        def __init__(self) -> None:
            self.model, self.table = model, table

        def __call__(self, step: int) -> float:
            is_shared = self.table.data_ptr() == place and self.model.in_features == 2
            return float(self.table[step]) * step / len(loader) if is_shared else math.nan

    exp = experiment(tmp_path, lambda o: lr_scheduler.LambdaLR(o, Factors()))
    assert whole(exp).low[:3] == pytest.approx((0.0, 0.5 * 0.5 / 40, 0.5 * 1 / 40))
    exp.close()


def test_a_large_array_can_only_be_read_by_a_copy(tmp_path: Path) -> None:
    factors = np.full(200_000, 0.5)

    def reads(step: int) -> float:
        return float(factors[step])

    def writes(step: int) -> float:
        factors[0] += 1
        return 0.5

    exp = experiment(tmp_path, lambda o: lr_scheduler.LambdaLR(o, reads))
    assert set(whole(exp).low) == {0.25}
    exp.close()
    exp = experiment(tmp_path, lambda o: lr_scheduler.LambdaLR(o, writes))
    assert whole(exp).why == "raises ValueError: assignment destination is read-only at 1"
    assert factors[0] == 1.5, "it was called by torch alone"
    exp.close()


# -- what functions keep ----------------------------------------------------------------------


def counting_array() -> Callable[[int], float]:
    calls = np.zeros(1)

    def factor(_at: int) -> float:
        calls[0] += 1
        return float(0.9 ** calls[0])

    return factor


class Remembers(nn.Module):
    """A module, or a data set, that counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.sums, self.inner = 0, {"calls": 0}, nn.Linear(2, 2)
        self.inner.calls = 0

    def factor(self, _at: int) -> float:
        self.calls += 1
        self.sums["calls"] += 1
        self.inner.calls += 1
        return 0.9 ** ((self.calls + self.sums["calls"] + self.inner.calls) / 3)


def by_a_module() -> Callable[[int], float]:
    model = Remembers()
    return lambda at: 1.0 * model.factor(at)


class Rows(torch.utils.data.Dataset[int]):
    def __init__(self) -> None:
        self.rows, self.calls = list(range(50_000)), 0

    def __len__(self) -> int:
        self.calls += 1
        return len(self.rows)


def counting_rows() -> Callable[[int], float]:
    loader = DataLoader(Rows(), 10)
    return lambda at: 0.9 ** (at * len(loader) * loader.dataset.calls / 20_000)


def counting_optimizer() -> Callable[[int], float]:
    other = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)

    def factor(_at: int) -> float:
        other.param_groups[0]["lr"] *= 0.9
        return other.param_groups[0]["lr"]

    return factor


def counting_function() -> Callable[[int], float]:
    def factor(_at: int) -> float:
        factor.calls += 1
        return 0.9**factor.calls

    factor.calls = 0
    return factor


def drawing() -> Callable[[int], float]:
    generator = torch.Generator().manual_seed(3)
    return lambda _at: float(torch.rand((), generator=generator))


def batches_drawn() -> Callable[[int], float]:
    rows = TensorDataset(torch.linspace(0, 1, 40))
    loader = DataLoader(rows, 1, shuffle=True, generator=torch.Generator().manual_seed(3))
    return lambda _at: float(next(iter(loader))[0])


def cached() -> Callable[[int], float]:
    calls: list[int] = []

    @functools.lru_cache
    def factor(at: int) -> float:
        calls.append(at)
        return 0.9 ** len(calls)

    return factor


KEEPS: dict[str, Callable[[], Callable[[int], float]]] = {
    "an array": counting_array,
    "a module, by its method": lambda: Remembers().factor,
    "a module, by a closure": by_a_module,
    "a loader": counting_rows,
    "a generator": drawing,
    "a loader's generator": batches_drawn,
    "another optimizer": counting_optimizer,
    "a function": counting_function,
    "a cache": cached,
    "a global": lambda: stateful_rates.by_global,
    "a global list": lambda: stateful_rates.by_list,
    "a global dict": lambda: stateful_rates.by_dict,
    "a class": lambda: stateful_rates.by_class,
    "a global, by another function": lambda: stateful_rates.by_a_function,
    "a global, by its module": lambda: by_its_module,
    "a global, by an import": lambda: imports,
}


def by_its_module(at: int) -> float:
    return stateful_rates.by_global(at)


def imports(at: int) -> float:
    from tests.unit.experiment.stateful_rates import by_global

    return by_global(at)


@pytest.mark.parametrize("what", KEEPS)
def test_what_a_function_keeps_is_not_moved_by_an_inspection(tmp_path: Path, what: str) -> None:
    """Nor by a rate that is set: the rates are those of a loop that nobody looked at."""
    stateful_rates.reset()
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.5)
    judge, right = lr_scheduler.LambdaLR(optimizer, KEEPS[what]()), []
    for _ in range(8):
        right.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        judge.step()
    stateful_rates.reset()
    exp = experiment(tmp_path, lambda o: lr_scheduler.LambdaLR(o, KEEPS[what]()), epochs=2)
    exp.subscribe(lambda event: exp.schedule, every_step=True)
    known = whole(exp)
    if "by its module" in what or "by an import" in what:
        assert known.why.startswith("no curve: the schedule cannot be copied (a function of it ")
        assert known.why.endswith("tests.unit.experiment.stateful_rates)")
    else:
        assert known.low == pytest.approx(right, rel=1e-3)
    exp.lr = exp.lr
    whole(exp)
    exp.run(wait=True)
    assert exp.scalars.since("train/learning_rate", 0)[1].tolist() == right
    exp.close()


class CountsInItsClass(lr_scheduler.LRScheduler):
    calls = 0
    seen: ClassVar[list[int]] = []

    def get_lr(self) -> list[float | torch.Tensor]:
        CountsInItsClass.calls += 1
        type(self).seen.append(self.last_epoch)
        return [rate * 0.9 ** len(self.seen) for rate in self.base_lrs]


def test_a_class_of_the_users_is_called_by_training_alone(tmp_path: Path) -> None:
    CountsInItsClass.calls, _ = 0, CountsInItsClass.seen.clear()
    exp = experiment(tmp_path, CountsInItsClass, epochs=1)
    assert CountsInItsClass.calls == 1
    assert whole(exp).low == pytest.approx([0.5 * 0.9**at for at in (1, 2, 3, 4)], rel=1e-3)
    exp.lr = 0.9
    assert exp.message == "step 0: lr 9e-1, and CountsInItsClass goes on at 2 times its rates"
    whole(exp)
    assert (CountsInItsClass.calls, CountsInItsClass.seen) == (1, [0])
    exp.run(wait=True)
    assert CountsInItsClass.seen == [0, 1, 2, 3, 4]
    exp.close()


def test_what_a_scheduler_draws_where_nothing_else_is_known_is_put_back(tmp_path: Path) -> None:
    """While its steps are computed elsewhere it is tried as well."""

    class Draws(lr_scheduler.LRScheduler):
        def get_lr(self) -> list[float | torch.Tensor]:
            return [rate * random.random() * float(torch.rand(())) for rate in self.base_lrs]

    exp = experiment(tmp_path, Draws)
    exp._training.is_remote = True
    before = torch.get_rng_state(), random.getstate()
    assert exp.schedule is not None
    whole(exp)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    exp._training.is_remote = False
    exp.close()


def test_a_function_that_fails_ends_the_curve_and_no_run(tmp_path: Path) -> None:
    table = [1.0, 0.5, 0.25]
    exp = experiment(tmp_path, lambda o: lr_scheduler.LambdaLR(o, lambda step: table[step]))
    known = whole(exp)
    assert known.low == (0.5, 0.25, 0.125)
    assert known.why == "raises IndexError: list index out of range at 3"
    exp.run(steps=2, wait=True)
    assert exp.status == "finished"
    exp.close()


def test_while_ranks_compute_its_steps_the_curve_stays(tmp_path: Path) -> None:
    """What is here of the schedule is what it was when the training left."""
    exp = experiment(tmp_path, lambda o: lr_scheduler.LambdaLR(o, decays))
    known = whole(exp)
    training = exp._training
    training.is_remote, training.step_count = True, 17
    assert whole(exp) == known
    exp.lr = 0.25
    assert exp.message == "step 17: lr 2.5e-1, and LambdaLR is scaled with it"
    scheduler: Any = exp.scheduler
    assert scheduler.base_lrs == [0.5], "whoever computes the steps scales it"
    for _ in range(2):
        waiting = whole(exp)
    assert (waiting.why, waiting.low) == ("no curve while ranks compute the steps", ())
    training.is_remote, training.step_count = False, 0
    whole(exp)
    assert whole(exp).low[:2] == (0.25, 0.45), "as the optimizer and the schedule are by then"
    exp.close()


# -- schedulers of the user's own -----------------------------------------------------------


class OwnRates(lr_scheduler.LRScheduler):
    """Goes by rates that only its author knows of."""

    top = 0.5

    def get_lr(self) -> list[float | torch.Tensor]:
        return [self.top / (1 + self.last_epoch) for _ in self.optimizer.param_groups]


class OwnFactors(lr_scheduler.LRScheduler):
    def get_lr(self) -> list[float | torch.Tensor]:
        return [rate / (1 + self.last_epoch) for rate in self.base_lrs]


def test_a_scheduler_with_rates_of_its_own_is_said_not_to_be_scaled(tmp_path: Path) -> None:
    exp = experiment(tmp_path, OwnRates)
    assert whole(exp).low[:3] == pytest.approx((0.5, 0.25, 0.16667), rel=1e-3)
    assert whole(exp).effect == (
        "A rate set here holds until the step is over: OwnRates uses rates of its own, which "
        "are not scaled."
    )
    exp.lr = 1.0
    assert exp.message == "step 0: lr 1e0 until OwnRates steps, which uses rates of its own"
    assert whole(exp).low[:3] == pytest.approx((1.0, 0.25, 0.16667), rel=1e-3)
    exp.close()


def test_a_scheduler_of_the_users_that_goes_by_its_first_rates_is_scaled(tmp_path: Path) -> None:
    exp = experiment(tmp_path, OwnFactors)
    assert "scales the rest" in whole(exp).effect
    exp.lr = 1.0
    assert exp.message == "step 0: lr 1e0, and OwnFactors goes on at 2 times its rates"
    assert whole(exp).low[:2] == (1.0, 0.5)
    exp.close()


def test_at_rate_0_it_says_how_a_rate_that_is_set_goes_on(tmp_path: Path) -> None:
    exp = experiment(tmp_path, lambda o: lr_scheduler.LambdaLR(o, lambda step: min(1.0, step / 4)))
    assert whole(exp).effect == (
        "LambdaLR is at rate 0: a rate set here holds for the next step, and the schedule "
        "continues as one created with it."
    )
    exp.lr = 1.0
    assert whole(exp).low[:5] == (1.0, 0.25, 0.5, 0.75, 1.0)
    assert "scales the rest" in whole(exp).effect
    exp.close()
