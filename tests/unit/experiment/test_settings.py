"""What can be set of an experiment at any time, and what a closed one refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

from tests.unit.experiment.plain_loop import (
    assert_equal,
    batches,
    data,
    linear,
    plain_loop,
    seeded,
)
from workbench.experiment import Experiment
from workbench.experiment.report.events import Event, ScheduleRemoved, StepDone
from workbench.experiment.services import Services, only
from workbench.memory import MemoryProbe, memory
from workbench.memory.simulated_gpu.out_of_memory import OutOfMemoryTool


def experiment(folder: Path) -> Experiment:
    torch.manual_seed(0)
    pair = torch.randn(32, 6), torch.arange(32) % 3
    return Experiment(nn.Linear(6, 3), pair, pair, batch_size=16, device="cpu", runs=folder)


def setting(name: str, value: object) -> Callable[[Experiment], None]:
    return lambda exp: setattr(exp, name, value)


ASKED: dict[str, Callable[[Experiment], Any]] = {
    "run": Experiment.run,
    "step": Experiment.step,
    "capture": lambda exp: exp.capture(MemoryProbe()),
    "memory": memory,
    "prediction": lambda exp: memory(exp, card="T4"),
    "remedy": Experiment.apply_remedy,
    "model": setting("model", nn.Linear(6, 3)),
    "modes": setting("modes", "bf16"),
    "card": setting("card", "8 GiB"),
    "no card": setting("card", None),
    "batch_size": setting("batch_size", 8),
    "val_batch_size": setting("val_batch_size", 8),
    "learning_rate": setting("learning_rate", 0.5),
    "scheduler": setting("scheduler", None),
    "epochs": setting("epochs", 7),
}


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("status", ["idle", "finished"])
def test_a_closed_experiment_refuses_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, status: str
) -> None:
    with only(Services(memory_tool=OutOfMemoryTool)):
        exp = experiment(tmp_path)
    if status == "finished":
        exp.run(wait=True)
    exp.close()
    before = settings(exp)
    with pytest.raises(RuntimeError, match="Linear is closed; make a new Experiment to train"):
        ASKED[what](exp)
    assert settings(exp) == before
    assert exp.status == status


def settings(exp: Experiment) -> tuple[Any, ...]:
    sizes = exp.batch_size, exp.val_batch_size
    return exp.model, exp.modes, exp.card, *sizes, exp.learning_rate, exp.epochs, exp.step_count


def test_batches_that_come_ready_made_keep_the_size_they_have(tmp_path: Path) -> None:
    dataset = TensorDataset(torch.randn(32, 6), torch.arange(32) % 3)
    loader = DataLoader(dataset, 8, sampler=SubsetRandomSampler(range(32)))
    exp = Experiment(nn.Linear(6, 3), loader, device="cpu", runs=tmp_path)
    exp.batch_size = 8
    with pytest.raises(ValueError, match="TensorDataset makes its own"):
        exp.batch_size = 4
    assert exp.batch_size == 8
    exp.close()


@pytest.mark.parametrize("name", ["lr", "learning_rate"])
@pytest.mark.parametrize("value", [-1, 0, "abc", float("nan"), float("inf"), True, None])
@pytest.mark.parametrize("status", ["idle", "finished"])
def test_a_learning_rate_that_is_none_is_a_sentence_and_changes_nothing(
    tmp_path: Path, name: str, value: Any, status: str
) -> None:
    exp = experiment(tmp_path)
    if status == "finished":
        exp.run(wait=True)
    before = (*settings(exp), exp.message, list(exp.notes), exp.markers, exp.status)
    with pytest.raises(ValueError, match=r"it must be a positive finite number") as refused:
        setattr(exp, name, value)
    assert str(refused.value).startswith(f"learning_rate is {value!r};")
    assert "\n" not in str(refused.value)
    assert (*settings(exp), exp.message, list(exp.notes), exp.markers, exp.status) == before
    exp.close()


def test_lr_is_the_learning_rate(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    assert exp.lr == exp.learning_rate == 1e-3
    exp.lr = 0.5
    assert exp.lr == exp.learning_rate == 0.5
    exp.learning_rate = 1
    assert exp.lr == exp.learning_rate == 1.0
    assert exp.message.endswith("lr 1e0")
    exp.close()


def test_a_learning_rate_that_is_set_while_steps_are_done_holds_from_the_next_one_on(
    tmp_path: Path,
) -> None:
    """A plain loop's numbers, in which the rate is set between the same two steps."""
    expected, model = seeded(linear), seeded(linear)
    optimizer, steps = torch.optim.SGD(expected.parameters(), lr=0.1), list[int]()

    def after_step() -> None:
        steps.append(1)
        if len(steps) == 3:
            optimizer.param_groups[0]["lr"] = 0.5

    right = plain_loop(expected, batches(data()), optimizer, epochs=2, after_step=after_step)
    exp = Experiment(
        model, data(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1), batch_size=16,
        shuffle=False, device="cpu", runs=tmp_path,
    )  # fmt: skip

    def look(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 3:
            exp.lr = 0.5

    exp.subscribe(look, every_step=True)
    exp.run(epochs=2, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == right
    assert_equal(model, expected)
    assert [marker.text for marker in exp.markers] == ["lr 5e-1"]


# -- a schedule ---------------------------------------------------------------------------------


def one_cycle(optimizer: torch.optim.Optimizer, factor: float = 1.0) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1 * factor, total_steps=8)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


class Scheduled:
    """8 steps under `one_cycle`, of a run and of a plain loop; something is done at step 3."""

    def __init__(
        self,
        folder: Path,
        to_experiment: Callable[[Experiment], None],
        to_loop: Callable[[torch.optim.Optimizer, list[Any]], None],
    ) -> None:
        self.events: list[Event] = []
        self.said: list[str] = []
        self.right_rates: list[float] = []
        self.right = self._looped(to_loop)
        model = seeded(linear)
        self.exp = exp = Experiment(
            model, data(), optimizer=sgd(model), scheduler=one_cycle, batch_size=16, shuffle=False,
            device="cpu", runs=folder,
        )  # fmt: skip

        def look(event: Event) -> None:
            self.events.append(event)
            self.said.append(exp.message)
            if isinstance(event, StepDone) and event.step == 3:
                to_experiment(exp)

        exp.subscribe(look, every_step=True)
        exp.run(epochs=2, wait=True)
        exp.close()
        self.losses = exp.scalars.since("train/loss", 0)[1].tolist()
        self.rates = exp.scalars.since("train/learning_rate", 0)[1].tolist()

    def _looped(self, change: Callable[[torch.optim.Optimizer, list[Any]], None]) -> list[float]:
        model = seeded(linear)
        optimizer = sgd(model)
        schedulers = [one_cycle(optimizer)]

        def before_update() -> None:
            self.right_rates.append(optimizer.param_groups[0]["lr"])

        def after_step() -> None:
            for scheduler in schedulers:
                scheduler.step()
            if len(self.right_rates) == 3:
                change(optimizer, schedulers)

        return plain_loop(
            model, batches(data()), optimizer, epochs=2,
            before_update=before_update, after_step=after_step,
        )  # fmt: skip


def test_a_rate_that_is_set_scales_the_rest_of_the_schedule(tmp_path: Path) -> None:
    def other_schedule(optimizer: torch.optim.Optimizer, schedulers: list[Any]) -> None:
        """That of a schedule made for so much larger rates, stepped as often."""
        made = sgd(linear())
        other = one_cycle(made, 0.25 / rates_at(3))
        for _ in range(3):
            made.step()
            other.step()
        optimizer.param_groups[0].update(made.param_groups[0] | {"params": held(optimizer)})

    run = Scheduled(tmp_path, setting("lr", 0.25), other_schedule)
    assert run.losses == pytest.approx(run.right, rel=1e-6)
    assert run.rates == pytest.approx(run.right_rates, rel=1e-12)
    assert run.rates[3] == 0.25
    factor = f"{0.25 / rates_at(3):.3g}"
    assert f"step 3: lr 2.5e-1, and OneCycleLR goes on at {factor} times its rates" in run.said


def test_a_schedule_that_is_removed_leaves_the_rate_as_it_is(tmp_path: Path) -> None:
    def none(_optimizer: torch.optim.Optimizer, schedulers: list[Any]) -> None:
        schedulers.clear()

    run = Scheduled(tmp_path, setting("scheduler", None), none)
    assert (run.losses, run.rates) == (run.right, run.right_rates)
    assert set(run.rates[3:]) == {rates_at(3)}
    removed = [event for event in run.events if isinstance(event, ScheduleRemoved)]
    assert removed == [ScheduleRemoved(3, "OneCycleLR", rates_at(3))]
    text = f"constant lr {rates_at(3):.1e}".replace("e-0", "e-")
    assert [marker.text for marker in run.exp.markers] == [text]
    assert f"step 3: {text} instead of OneCycleLR" in run.said
    assert run.exp.scheduler is None
    assert "Schedule" not in {fact.label for fact in run.exp.facts()}


def held(optimizer: torch.optim.Optimizer) -> list[Any]:
    return optimizer.param_groups[0]["params"]


def rates_at(step: int) -> float:
    """Of the one-cycle schedule, after so many steps."""
    optimizer = sgd(linear())
    scheduler = one_cycle(optimizer)
    for _ in range(step):
        optimizer.step()
        scheduler.step()
    return optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("value", [0.1, "cosine", one_cycle])
def test_a_schedule_can_only_be_removed(tmp_path: Path, value: Any) -> None:
    exp = experiment(tmp_path)
    with pytest.raises(ValueError, match=r"valid is None, which keeps the learning rate") as told:
        exp.scheduler = value
    assert type(value).__name__ in str(told.value)
    before = (exp.message, exp.markers)
    exp.scheduler = None  # there is none: nothing to say
    assert (exp.message, exp.markers, exp.scheduler) == (*before, None)
    exp.close()


def test_a_rate_set_while_a_warm_up_is_at_0_says_how_it_goes_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    pair = torch.randn(32, 6), torch.arange(32) % 3
    exp = Experiment(
        nn.Linear(6, 3), pair, batch_size=16, device="cpu", runs=tmp_path, epochs=3,
        scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: min(1.0, step / 2)),
    )  # fmt: skip
    assert exp.lr == 0.0
    exp.lr = 0.5
    assert exp.message == (
        "step 0: lr 5e-1 for the next step; LambdaLR is at 0 and continues as one created with it"
    )
    exp.run(wait=True)
    exp.close()
    rates = exp.scalars.since("train/learning_rate", 0)[1].tolist()
    assert rates == [0.5, 0.25, 0.5, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("clip_grad_norm", r"given when an experiment is created.*clip_grad_norm=.*learning_rate"),
        ("loss", r"given when an experiment is created"),
        ("val", r"given when an experiment is created"),
        ("optimizer", r"given when an experiment is created"),
        ("status", r"status is read-only; these can be set"),
        ("learnig_rate", r"no 'learnig_rate', did you mean learning_rate\?"),
        ("clip", r"no 'clip'"),
    ],
)
def test_nothing_is_taken_that_would_have_no_effect(tmp_path: Path, name: str, said: str) -> None:
    exp = experiment(tmp_path)
    with pytest.raises(AttributeError, match=said):
        setattr(exp, name, 1.0)
    exp._own = 1  # what begins so is nobody's setting
    exp.close()


def test_an_argument_that_does_not_exist_is_named_with_the_nearest_that_does(
    tmp_path: Path,
) -> None:
    x, y = torch.randn(64, 4), torch.arange(64) % 2
    other: dict[str, Any] = {"batchsize": 16}
    with pytest.raises(TypeError, match="Experiment has no argument 'batchsize', did you mean ba"):
        Experiment(nn.Linear(4, 2), (x, y), runs=tmp_path, **other)
    exp = Experiment(nn.Linear(4, 2), (x, y), runs=tmp_path, device="cpu")
    with pytest.raises(TypeError, match=r"^run has no argument 'epoch', did you mean epochs\? It"):
        exp.run(**cast(Any, {"epoch": 3}))
    with pytest.raises(TypeError, match=r"^run has no argument 'zzz'\. It has epochs, steps, wait"):
        exp.run(**cast(Any, {"zzz": 3}))
    assert exp.step_count == 0
