"""When a scheduler steps, what it is fed, and what happens past its end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from tests.unit.experiment.plain_loop import (
    STEPS_PER_EPOCH,
    assert_equal,
    batches,
    data,
    evaluated,
    linear,
    plain_loop,
    seeded,
)
from workbench.experiment import Experiment
from workbench.experiment.recipe.schedules import Schedule
from workbench.experiment.report.events import EpochDone, Event

EPOCHS = 3
STEPS = EPOCHS * STEPS_PER_EPOCH

Make = Callable[[torch.optim.Optimizer], Any]


def test_when_a_scheduler_steps() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    one_cycle = lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    assert Schedule(one_cycle, optimizer).per_step
    assert Schedule(lambda o: lr_scheduler.StepLR(o, 1), optimizer).per_epoch
    assert Schedule(("step", lambda o: lr_scheduler.StepLR(o, 1)), optimizer).per_step
    assert not Schedule(None, optimizer).per_epoch
    with pytest.raises(ValueError, match="steps every 'batch'; valid: 'step', 'epoch'"):
        Schedule(("batch", one_cycle), optimizer)
    with pytest.raises(ValueError, match="scheduler is a int"):
        Schedule(3, optimizer)


def test_plateau_takes_the_epochs_loss() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    schedule = Schedule(lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0), optimizer)
    for loss in (1.0, 2.0, 3.0):
        schedule.after_epoch(lambda loss=loss: loss)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


class Like(torch.optim.Optimizer):
    """An optimizer around another one, as SAM and Lookahead are: the groups are the same dicts."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        self.base, self.defaults, self.state = base, base.defaults, base.state
        self.param_groups = base.param_groups

    def step(self, closure: Any = None) -> Any:
        return self.base.step(closure)


class Holds:
    """A scheduler of nobody's base class."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.of = optimizer

    def step(self) -> None:
        self.of.param_groups[0]["lr"] /= 2


OF_ANOTHER: dict[str, Make] = {
    "of torch": lambda o: lr_scheduler.StepLR(o, 1),
    "plateau": lr_scheduler.ReduceLROnPlateau,
    "chained": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 1)], optimizer=o),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.StepLR(o, 1), lr_scheduler.StepLR(o, 2)], [3]
    ),
    "own": Holds,
}


@pytest.mark.parametrize("kind", OF_ANOTHER)
def test_a_scheduler_of_another_optimizer_is_refused(tmp_path: Path, kind: str) -> None:
    """It would set the rates of that one, and the training would go on at its first rate."""
    run = Run(OF_ANOTHER[kind])
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"of another optimizer, whose rates .* scheduler=lambda"):
        run.experiment(tmp_path)
    with pytest.raises(ValueError, match="of another optimizer"):
        Experiment(run.model, data(), optimizer="sgd", scheduler=run.scheduler, runs=tmp_path)
    assert Schedule(OF_ANOTHER[kind](run.optimizer), Like(run.optimizer)).scheduler
    assert Schedule(OF_ANOTHER[kind](Like(run.optimizer)), run.optimizer).scheduler


def test_a_chain_with_a_scheduler_of_another_optimizer_is_refused() -> None:
    ours, other = (torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1) for _ in range(2))
    chain = lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(ours, 1)], optimizer=ours)
    chain._schedulers = [*chain._schedulers, lr_scheduler.ExponentialLR(other, 0.9)]
    with pytest.raises(ValueError, match="ExponentialLR is a scheduler of another optimizer"):
        Schedule(chain, ours)


class TakesTheEpoch(Holds):
    """As those of timm."""

    def step(self, epoch: int, metric: float | None = None) -> None:
        del metric
        self.of.param_groups[0]["lr"] = 0.1 / (epoch + 1)


class Counts(TakesTheEpoch):
    count = 0

    def step(self) -> None:
        self.count += 1
        super().step(self.count)


def test_a_scheduler_whose_step_needs_an_argument_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"TakesTheEpoch whose step needs 'epoch'.*def step"):
        Run(TakesTheEpoch).experiment(tmp_path)
    assert_same(trained(Counts, tmp_path), by_hand(Counts, "epoch"))


class KeepsADict(lr_scheduler.LRScheduler):
    """Of the user's own: its parts are in a dict of the name that torch has for a list."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._schedulers = {"a": lr_scheduler.ExponentialLR(optimizer, 0.9)}
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        return [0.9 * group["lr"] for group in self.optimizer.param_groups]


def test_a_scheduler_may_keep_a_dict_of_others(tmp_path: Path) -> None:
    assert_same(trained(KeepsADict, tmp_path), by_hand(KeepsADict, "epoch"))
    exp = Run(KeepsADict).experiment(tmp_path)
    exp.lr = 0.05
    exp.run(epochs=1, wait=True)
    assert exp.learning_rate == pytest.approx(0.045)
    exp.close()


# -- a run against a plain loop ---------------------------------------------------------------


@dataclass
class Run:
    """A model, its optimizer and its scheduler, and what a run of them gave."""

    make: Make
    rate: float = 0.1
    model: nn.Linear = field(default_factory=lambda: seeded(linear))
    rates: list[float] = field(default_factory=list)
    """Of every training step, as it was computed."""
    losses: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.rate, momentum=0.9)
        self.scheduler = self.make(self.optimizer)
        self.model.register_forward_pre_hook(self._note_rate)

    def _note_rate(self, model: nn.Module, _inputs: object) -> None:
        if model.training:
            self.rates.append(float(self.optimizer.param_groups[0]["lr"]))

    def experiment(self, folder: Path, **options: Any) -> Experiment:
        return Experiment(
            self.model, data(), optimizer=self.optimizer, scheduler=self.scheduler,
            batch_size=16, shuffle=False, runs=folder, device="cpu", **options,
        )  # fmt: skip

    def of_experiment(self, exp: Experiment) -> Run:
        exp.scalars.flush()
        self.losses = exp.scalars.since("train/loss", 0)[1].tolist()
        self.notes = list(exp.notes)
        exp.close()
        return self


def by_hand(
    make: Make, every: str, epochs: int = EPOCHS, measure: Callable[[Run], float] | None = None
) -> Run:
    """A loop that steps the scheduler after every step, or after every epoch."""
    run = Run(make)

    def step() -> None:
        if measure is None:
            run.scheduler.step()
        else:
            run.scheduler.step(measure(run))

    after: dict[str, Callable[[], object]] = {f"after_{every}": step}
    run.losses = plain_loop(run.model, batches(data()), run.optimizer, epochs=epochs, **after)
    return run


def trained(make: Make, folder: Path, epochs: int = EPOCHS, **options: Any) -> Run:
    run = Run(make)
    exp = run.experiment(folder, **options)
    exp.run(epochs=epochs, wait=True)
    return run.of_experiment(exp)


def assert_same(found: Run, expected: Run) -> None:
    assert found.rates == expected.rates
    assert found.losses == expected.losses
    assert_equal(found.model, expected.model)


def warm_up_of_transformers(optimizer: torch.optim.Optimizer) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.get_linear_schedule_with_warmup(optimizer, 3, STEPS)


def warm_up_and_cosine(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    warm_up = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, STEPS - 3)
    return lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], [3])


def chained(total_iters: int) -> Make:
    def make(optimizer: torch.optim.Optimizer) -> lr_scheduler.ChainedScheduler:
        parts = [
            lr_scheduler.LinearLR(optimizer, 0.1, total_iters=total_iters),
            lr_scheduler.ExponentialLR(optimizer, 0.9),
        ]
        return lr_scheduler.ChainedScheduler(parts, optimizer=optimizer)

    return make


def chained_of_steps(optimizer: torch.optim.Optimizer) -> lr_scheduler.ChainedScheduler:
    parts = [
        lr_scheduler.LambdaLR(optimizer, lambda step: 0.95**step),
        lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=2),
    ]
    return lr_scheduler.ChainedScheduler(parts, optimizer=optimizer)


def decay(base: float, at: int) -> float:
    return base**at


def lambda_lr(function: Callable[[int], float]) -> Make:
    return lambda o: lr_scheduler.LambdaLR(o, function)


# what is given, after what a person would step it, and what has to be said of it ("": nothing)
KINDS: dict[str, tuple[Make, str, str]] = {
    "transformers": (warm_up_of_transformers, "step", "its function counts steps"),
    "lambda step": (lambda_lr(lambda step: 0.9**step), "step", "its function counts steps"),
    "lambda num_iter": (lambda_lr(lambda num_iter: 0.9**num_iter), "step", "counts steps"),
    "lambda epoch": (lambda_lr(lambda epoch: 0.5**epoch), "epoch", ""),
    "lambda epoch from 0": (lambda_lr(lambda epoch: min(1.0, epoch / 2)), "epoch", ""),
    "lambda of neither": (lambda_lr(lambda at: 0.5**at), "epoch", ""),
    "partial": (lambda_lr(functools.partial(decay, 0.5)), "epoch", ""),
    "first factor 0": (lambda_lr(lambda at: min(1.0, at / 6)), "step", "counts steps"),
    "multiplicative": (lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9), "step",
                       "counts steps"),
    "cosine over steps": (lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS), "step",
                          "its length, 12, is that of the run in steps"),
    "cosine but for a step": (lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS - 1), "step",
                              "its length, 11, is that of the run in steps"),
    "cosine over epochs": (lambda o: lr_scheduler.CosineAnnealingLR(o, EPOCHS), "epoch", ""),
    "cosine over neither": (lambda o: lr_scheduler.CosineAnnealingLR(o, 50), "epoch",
                            "its length, 50, is neither that of the run in epochs, 3, nor in "
                            "steps, 12"),
    "restarts": (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2), "epoch", ""),
    "sequential": (warm_up_and_cosine, "step", "its length, 12, is that of the run in steps"),
    "chained over steps": (chained(STEPS), "step", "is that of the run in steps"),
    "chained over epochs": (chained(EPOCHS), "epoch", ""),
    "chained of steps": (chained_of_steps, "step", "counts steps"),
    "one cycle": (lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=STEPS), "step", ""),
    "cyclic": (lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, step_size_up=4), "step", ""),
    "step": (lambda o: lr_scheduler.StepLR(o, 1, 0.5), "epoch", ""),
    "milestones": (lambda o: lr_scheduler.MultiStepLR(o, [1, 2], 0.5), "epoch", ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_scheduler_steps_as_a_person_would_step_it(tmp_path: Path, kind: str) -> None:
    """The rate of every step, the losses and the weights are a plain loop's, to the last bit."""
    make, every, said = KINDS[kind]
    found = trained(make, tmp_path)
    assert_same(found, by_hand(make, every))
    assert len(set(found.rates)) > 1, "the schedule changed nothing, so it shows nothing"
    about = [note for note in found.notes if "schedule_every" in note]
    assert len(about) == bool(said), found.notes
    if said:
        assert said in about[0]
        assert f"steps once every {every}" in about[0]


@pytest.mark.parametrize("every", ["step", "epoch"])
@pytest.mark.parametrize("kind", ["transformers", "cosine over steps", "lambda epoch", "one cycle"])
def test_schedule_every_has_the_last_word(tmp_path: Path, kind: str, every: str) -> None:
    make = KINDS[kind][0]
    found = trained(make, tmp_path, schedule_every=every)
    assert_same(found, by_hand(make, every))
    assert not any("schedule_every" in note for note in found.notes), found.notes


def test_schedule_every_is_one_of_two(tmp_path: Path) -> None:
    run = Run(KINDS["step"][0])
    with pytest.raises(ValueError, match="steps every 'batch'; valid: 'step', 'epoch'"):
        run.experiment(tmp_path, schedule_every="batch")


def test_a_schedule_goes_on_across_runs_that_end_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    for kind in ("lambda step", "lambda epoch"):
        make, every, _ = KINDS[kind]
        run = Run(make)
        exp = run.experiment(tmp_path)
        for steps in (3, 2, 5):
            exp.run(steps=steps, wait=True)
        exp.run(epochs=1, wait=True)  # the epoch that was begun counts as one
        assert_same(run.of_experiment(exp), by_hand(make, every))


# -- functions are called where a plain loop calls them, and nowhere else ----------------------


def next_of(rates: Iterator[float]) -> Make:
    """Takes the next rate whenever it is called; nothing but its calls says what it counts."""
    return lambda o: lr_scheduler.LambdaLR(o, lambda _: next(rates))


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_a_function_that_takes_its_rates_from_an_iterator_loses_none(
    tmp_path: Path, is_looked_at: bool
) -> None:
    def make() -> Make:
        return next_of(iter([1 - at / 20 for at in range(20)]))

    run = Run(make())
    exp = run.experiment(tmp_path)
    for _ in range(EPOCHS):
        if is_looked_at:
            for _ in range(3):
                assert exp.schedule is not None
        exp.run(epochs=1, wait=True)
    assert_same(run.of_experiment(exp), by_hand(make(), "epoch"))


@pytest.mark.parametrize("epochs_of_a_run", [[EPOCHS], [1, 1, 1]])
def test_a_function_is_called_as_often_as_by_torch(
    tmp_path: Path, epochs_of_a_run: list[int]
) -> None:
    calls: list[int] = []

    def factor(at: int) -> float:
        calls.append(at)
        return 0.5**at

    run = Run(lambda_lr(factor))
    exp = run.experiment(tmp_path)
    assert calls == [0]
    for epochs in epochs_of_a_run:
        exp.run(epochs=epochs, wait=True)
    run.of_experiment(exp)
    assert calls == [0, 1, 2, 3]


def ramp(at: int) -> float:
    return min(1.0, at / 6)


AT_0: dict[str, Make] = {
    "alone": lambda_lr(ramp),
    "one for each group": lambda o: lr_scheduler.LambdaLR(o, [ramp]),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ExponentialLR(o, 0.9), lr_scheduler.LambdaLR(o, ramp)], optimizer=o
    ),
    "later": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.5), lr_scheduler.LambdaLR(o, ramp)], [3]
    ),
}


@pytest.mark.parametrize("kind", AT_0)
def test_a_warm_up_from_0_is_known_by_the_rate_that_torch_came_to(
    tmp_path: Path, kind: str
) -> None:
    assert_same(trained(AT_0[kind], tmp_path), by_hand(AT_0[kind], "step"))


def test_what_it_counts_is_known_though_a_rate_is_set_before_the_run(tmp_path: Path) -> None:
    run = Run(lambda_lr(ramp))
    exp = run.experiment(tmp_path)
    exp.lr = 0.1
    exp.run(epochs=2, wait=True)
    assert exp._training.schedule.per_step
    found = run.of_experiment(exp)
    assert found.rates[1:] == by_hand(lambda_lr(ramp), "step", 2).rates[1:]


# -- what a plateau is fed --------------------------------------------------------------------

_VAL = data(64, seed=2)


def of_validation(which: int) -> Callable[[Run], float]:
    return lambda run: evaluated(run.model, batches(_VAL, 64))[which]


def plateau(mode: str) -> Make:
    return lambda o: lr_scheduler.ReduceLROnPlateau(o, mode, factor=0.5, patience=0, threshold=0.0)


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_plateau_is_fed_the_loss_of_validation_or_its_accuracy(tmp_path: Path, mode: str) -> None:
    epochs = 8
    by = {"min": 0, "max": 1}
    expected = by_hand(plateau(mode), "epoch", epochs, of_validation(by.pop(mode)))
    wrong = by_hand(plateau(mode), "epoch", epochs, of_validation(*by.values()))
    found = trained(plateau(mode), tmp_path, epochs, val=_VAL)
    assert_same(found, expected)
    assert found.rates != wrong.rates, "both measures lead to the same rates: this shows nothing"


@pytest.mark.parametrize("mode", ["min", "max"])
def test_without_validation_a_plateau_is_fed_what_the_epoch_trained(
    tmp_path: Path, mode: str
) -> None:
    """The mean loss of its steps, or the share of right answers, each as its step had it."""
    epochs, seen = 8, list[tuple[float, float]]()

    def judged() -> Run:
        run = Run(plateau(mode))
        x, y = data()
        found: list[float] = []

        def look(module: nn.Module, inputs: tuple[torch.Tensor], logits: torch.Tensor) -> None:
            rows = slice(16 * (len(found) % 4), 16 * (len(found) % 4) + 16)
            loss = nn.functional.cross_entropy(logits.detach(), y[rows]).item()
            right = (logits.argmax(1) == y[rows]).sum().item()
            found.append(loss if mode == "min" else right)

        run.model.register_forward_hook(look)

        def step() -> None:
            total = sum(found[-STEPS_PER_EPOCH:])
            run.scheduler.step(total / (STEPS_PER_EPOCH if mode == "min" else len(x)))
            seen.append((total, run.optimizer.param_groups[0]["lr"]))

        run.losses = plain_loop(
            run.model, batches((x, y)), run.optimizer, epochs=epochs, after_epoch=step
        )
        return run

    assert_same(trained(plateau(mode), tmp_path, epochs), judged())
    assert seen[-1][1] < 0.1, "the rate was never reduced, so it shows nothing"


def test_a_plateau_of_accuracy_without_any_says_so(tmp_path: Path) -> None:
    model = seeded(lambda: nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = data()
    exp = Experiment(
        model, (x, y.float()[:, None]), optimizer=optimizer, scheduler=plateau("max"),
        loss=nn.MSELoss(), runs=tmp_path, device="cpu",
    )  # fmt: skip
    exp.run(epochs=3, wait=True)
    assert exp.status == "finished"
    assert exp.learning_rate == 0.1
    assert sum("ReduceLROnPlateau has no metric to follow" in note for note in exp.notes) == 1
    exp.close()


# -- past the end -----------------------------------------------------------------------------


def one_cycle_of_8(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=8)


def one_cycle_after_a_warm_up(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2),
        lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=6),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, [2])


def until_it_raises(make: Make, epochs: int) -> Run:
    """A plain loop whose author steps the scheduler no more once it has raised."""
    run, over = Run(make), list[str]()

    def step() -> None:
        try:
            if not over:
                run.scheduler.step()
        except ValueError as error:
            over.append(str(error))

    run.losses = plain_loop(
        run.model, batches(data()), run.optimizer, epochs=epochs, after_step=step
    )
    assert over
    return run


@pytest.mark.parametrize("make", [one_cycle_of_8, one_cycle_after_a_warm_up])
def test_past_the_end_of_one_cycle_the_last_rate_stays_and_it_is_said_once(
    tmp_path: Path, make: Make
) -> None:
    """Torch has one rate past the end, far off the curve, and raises for the next: a loop ends."""
    run = Run(make)
    exp = run.experiment(tmp_path)
    for _ in range(4):
        exp.run(epochs=1, wait=True)
        assert exp.failure is None
    assert exp.step_count == 16
    about = [note for note in exp.notes if "is over after 8 steps" in note]
    assert len(about) == 1, exp.notes
    assert any(line.value.endswith(", over") for line in exp.facts() if "over" in line.value)
    expected = until_it_raises(make, epochs=4)
    assert (run.rates[:9], exp.scalars.since("train/loss", 0)[1].tolist()[:9]) == (
        expected.rates[:9],
        expected.losses[:9],
    )
    assert run.rates[8] > 1000 * run.rates[7], "torch has no such jump: the rule is not needed"
    assert set(run.rates[9:]) == {run.rates[7]}
    assert "the rate stays at 2.0e-6" in about[0]
    momentum = run.optimizer.param_groups[0]["momentum"]
    assert momentum == pytest.approx(0.95), "the end of the curve has the largest momentum"
    exp.learning_rate = 0.3
    exp.run(steps=2, wait=True)
    assert run.rates[-2:] == [0.3, 0.3], "a rate that is set past the end did not stay"
    assert len([note for note in exp.notes if "is over" in note]) == 1
    exp.close()


def test_a_rate_that_is_set_right_after_the_end_stays(tmp_path: Path) -> None:
    run = Run(one_cycle_of_8)
    exp = run.experiment(tmp_path)
    exp.run(epochs=2, wait=True)
    exp.learning_rate = 0.25
    exp.run(steps=3, wait=True)
    assert run.rates[-3:] == [0.25] * 3
    assert any("the rate stays at 2.5e-1" in note for note in exp.notes), exp.notes
    exp.close()


def test_a_cycle_that_is_followed_by_another_schedule_is_not_the_end(tmp_path: Path) -> None:
    def make(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
        parts = [
            lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=4),
            lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
        ]
        return lr_scheduler.SequentialLR(optimizer, parts, [5])

    found = trained(make, tmp_path)
    assert_same(found, by_hand(make, "step"))
    assert not any("over" in note for note in found.notes), found.notes


# -- a scheduler of the user's own ------------------------------------------------------------


class Fails(lr_scheduler.ExponentialLR):
    """Raises at one of its calls, before it does anything."""

    def __init__(self, optimizer: torch.optim.Optimizer, at: int) -> None:
        self.waits = iter(range(at, -1, -1))  # the first call is the constructor's
        super().__init__(optimizer, 0.8)

    def step(self, epoch: int | None = None) -> None:
        if next(self.waits, None) == 0:
            raise RuntimeError("a fault in step")
        super().step(epoch)


@pytest.mark.parametrize(("every", "at", "steps"), [("step", 5, 5), ("step", 8, 8)])
def test_a_scheduler_that_raises_costs_no_step(
    tmp_path: Path, every: str, at: int, steps: int
) -> None:
    """The update has been applied, is counted and logged; its step is done later."""
    run = Run(lambda o: Fails(o, at))
    exp = run.experiment(tmp_path, schedule_every=every)
    with pytest.raises(RuntimeError, match="a fault in step"):
        exp.run(epochs=EPOCHS, wait=True)
    assert (exp.status, exp.step_count) == ("exception", steps)
    assert len(exp.scalars.since("train/loss", 0)[0]) == steps
    exp.resume().wait(120)
    assert (exp.status, exp.step_count) == ("finished", STEPS)
    nothing_lost = by_hand(lambda o: lr_scheduler.ExponentialLR(o, 0.8), every)
    assert_same(run.of_experiment(exp), nothing_lost)


def test_a_scheduler_that_raises_after_an_epoch_is_called_again(tmp_path: Path) -> None:
    """As a failed validation is: the epoch ends once, and no batch is trained on twice."""
    run, epochs = Run(lambda o: Fails(o, 2)), list[int]()
    exp = run.experiment(tmp_path, schedule_every="epoch", val=_VAL)

    def note(event: Event) -> None:
        if isinstance(event, EpochDone):
            epochs.append(event.epoch)

    exp.subscribe(note)
    with pytest.raises(RuntimeError, match="a fault in step"):
        exp.run(epochs=EPOCHS, wait=True)
    assert (exp.status, exp.step_count, epochs) == ("exception", 8, [1])
    exp.resume().wait(120)
    assert (exp.status, exp.step_count, epochs) == ("finished", STEPS, [1, 2, 3])
    assert exp.scalars.since("val/loss", 0)[0].tolist() == [4, 8, 12], "validated anew"
    asked_again = by_hand(lambda o: lr_scheduler.ExponentialLR(o, 0.8), "epoch")
    assert_same(run.of_experiment(exp), asked_again)


class OnceAt:
    """A function of a `LambdaLR` that reads a file which is not there for once."""

    def __init__(self, at: int | None) -> None:
        self.at = at

    def __call__(self, at: int) -> float:
        if at == self.at:
            self.at = None
            raise OSError("no such file for once")
        return 0.9**at


RAISING: dict[str, Callable[[int | None], Make]] = {
    "alone": lambda at: lambda_lr(OnceAt(at)),
    "chained": lambda at: (
        lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.StepLR(o, 2, 0.7), lr_scheduler.LambdaLR(o, OnceAt(at))], optimizer=o
        )
    ),
    "sequential": lambda at: (
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LambdaLR(o, OnceAt(at)), lr_scheduler.ExponentialLR(o, 0.9)], [6]
        )
    ),
}


@pytest.mark.parametrize("every", ["step", "epoch"])
@pytest.mark.parametrize("kind", RAISING)
def test_a_rate_that_could_not_be_computed_for_once_is_not_skipped(
    tmp_path: Path, kind: str, every: str
) -> None:
    """Torch has counted the step by then, and those before it in a chain have set their rates."""
    run = Run(RAISING[kind](2))
    exp = run.experiment(tmp_path, schedule_every=every, val=_VAL)
    with pytest.raises(OSError, match="for once"):
        exp.run(epochs=EPOCHS, wait=True)
    rate = exp.learning_rate
    assert rate == run.rates[-1], "the rate is one that no step was to have"
    exp.resume().wait(120)
    assert exp.scalars.since("val/loss", 0)[0].tolist() == [4, 8, 12]
    assert_same(run.of_experiment(exp), by_hand(RAISING[kind](None), every))


def test_what_a_scheduler_keeps_is_put_back_when_it_raises() -> None:
    class Keeps(lr_scheduler.ExponentialLR):
        fails = True

        def step(self, epoch: int | None = None) -> None:
            if self._is_initial:
                self.seen, self.sums = [1], {"steps": 0}
                return super().step(epoch)
            self.seen.append(2)
            self.sums["steps"] += 1
            self.new = True
            super().step(epoch)
            self.optimizer.param_groups[0]["momentum"] = 0.5
            if self.fails:
                raise RuntimeError("after all was done")
            return None

    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=torch.tensor(1.0), momentum=0.9)
    rate = optimizer.param_groups[0]["lr"]
    scheduler = Keeps(optimizer, 0.5)
    optimizer.step()
    seen, schedule = scheduler.seen, Schedule(("step", scheduler), optimizer)
    with pytest.raises(RuntimeError, match="after all was done"):
        schedule.after_step()
    group = optimizer.param_groups[0]
    assert (float(rate), group["momentum"], scheduler.last_epoch) == (1.0, 0.9, 0)
    assert group["lr"] is rate
    assert (seen, scheduler.sums) == ([1], {"steps": 0})
    assert scheduler.seen is seen
    assert not hasattr(scheduler, "new")
    scheduler.fails = False
    schedule.catch_up()
    assert schedule.catch_up() == ""
    assert (float(rate), scheduler.last_epoch, seen) == (0.5, 1, [1, 2])
