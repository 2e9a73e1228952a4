"""Every toggle during one run: no step is lost or repeated, and nothing else changes.

The workers' part is compared with a run that never leaves its process and changes its other modes
at the very same steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from tests.integration.parallel.support import Net, Tokens, losses, made, moments, sentences
from workbench.experiment import Experiment
from workbench.experiment.report.events import Event, ModesChanged, StepDone
from workbench.modes import ModeSet

ORDER = ["compile", "compile+bf16", "compile+bf16+fsdp:2", "fsdp:2", "ddp:2", ""]
STEPS_EACH = 6
STEPS = 4_000
"""More than all toggles take; how many ranks do before they read of the next one is up to them."""

pytestmark = pytest.mark.usefixtures("forked_ranks")


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.head(nn.functional.max_pool2d(x, 2).flatten(1))


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    return (
        torch.from_numpy(images).float().view(-1, 1, 8, 8)[:500] / 16,
        torch.from_numpy(labels[:500]),
    )


class Toggling:
    """Sets the next modes once enough steps were done under the last ones."""

    def __init__(self, experiment: Experiment, order: list[str]) -> None:
        self.experiment, self.left = experiment, list(order)
        self.since = 0
        self.changes: list[tuple[int, str]] = []
        """(steps done before it, modes as printed)"""
        self.steps: list[int] = []
        experiment.subscribe(self, every_step=True)

    def __call__(self, event: Event) -> None:
        if isinstance(event, ModesChanged):
            self.changes.append((event.step, event.after))
            self.since = event.step
        if isinstance(event, StepDone):
            self.steps.append(event.step)
            if event.step < self.since + STEPS_EACH:
                return
            self.since = STEPS  # until it has happened
            if self.left:
                self.experiment.modes = self.left.pop(0)
            else:
                self.experiment.stop()


def without_layout(modes: str) -> str:
    return str(ModeSet.parse(modes, "cpu").with_value("parallel", "off"))


@pytest.mark.parametrize(
    ("model", "data", "optimizer"),
    [(Digits, digits, "sgd"), (Tokens, sentences, "adamw")],
    ids=["digits", "transformer"],
)
def test_through_every_toggle_and_back(
    tmp_path: Path, model: Callable[[], nn.Module], data: Callable[[], Any], optimizer: str
) -> None:
    given = {"data": data(), "optimizer": optimizer, "lr": 0.01}
    toggled = made(tmp_path / "runs", model, **given)
    toggling = Toggling(toggled, ORDER)
    toggled.run(steps=STEPS, wait=True)
    assert [modes for _, modes in toggling.changes] == [
        "compile", "compile+bf16", "compile+bf16+fsdp:2", "fsdp:2", "ddp:2", "fp32",
    ]  # fmt: skip
    assert toggled.status == "stopped"
    steps = toggled.step_count
    assert toggling.steps == list(range(1, steps + 1)), "a step was lost or repeated"
    found = toggled.scalars.since("train/loss", 0)[0].tolist()
    assert found == list(range(1, steps + 1))

    stayed = made(tmp_path / "runs", model, **given)
    for (begin, modes), (end, _) in pairwise([(0, ""), *toggling.changes, (steps, "")]):
        stayed.modes = without_layout(modes)
        stayed.run(steps=end - begin, wait=True)
    ours, theirs = losses(toggled), losses(stayed)
    left = toggling.changes[2][0]
    assert torch.equal(ours[:left], theirs[:left]), "nothing was parallel yet: equal to the bit"
    # in 16 bits half a batch is rounded otherwise than a whole one
    back = toggling.changes[3][0]
    torch.testing.assert_close(ours[left:back], theirs[left:back], rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "data", "optimizer"),
    [(Digits, digits, "sgd"), (Tokens, sentences, "adamw"), (Net, None, "adamw")],
    ids=["digits", "transformer", "residual"],
)
def test_where_arithmetic_is_fp32_a_toggled_run_is_an_untoggled_one(
    tmp_path: Path, model: Callable[[], nn.Module], data: Callable[[], Any] | None, optimizer: str
) -> None:
    given = {"data": data and data(), "optimizer": optimizer, "lr": 0.01}
    toggled = made(tmp_path / "runs", model, **given)
    toggling = Toggling(toggled, ["fsdp:2", "", "ddp:2", "fsdp:2,keep", ""])
    toggled.run(steps=STEPS, wait=True)
    assert len(toggling.changes) == 5
    steps = toggled.step_count
    assert toggling.steps == list(range(1, steps + 1))
    stayed = made(tmp_path / "runs", model, **given)
    stayed.run(steps=steps, wait=True)
    difference = (losses(toggled) / losses(stayed) - 1).abs()
    print(f"{steps} steps: losses differ by {difference.max():.1e}, relative")
    assert difference.max() <= 1e-6  # sums over ranks are rounded in another order
    ours, theirs = moments(toggled), moments(stayed)
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        torch.testing.assert_close(ours[key], value, rtol=1e-4, atol=1e-6)
    assert toggled._training.cursor.position() == stayed._training.cursor.position()


def test_pause_brings_it_back_and_resume_sends_it_again(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", Net, lr=0.01, modes="ddp:2")
    before = [parameter.clone() for parameter in experiment.model.parameters()]
    reached = threading.Event()
    experiment.subscribe(lambda event: event.step >= 10 and reached.set(), every_step=True)
    run = experiment.run(steps=10_000)
    assert reached.wait(120)
    run.pause()
    run.wait(120)
    assert experiment.status == "paused"
    step = experiment.step_count
    assert step >= 10
    changed = zip(experiment.model.parameters(), before, strict=True)
    assert not any(torch.equal(ours, old) for ours, old in changed), "weights are not back"
    stayed = made(tmp_path / "runs", Net, lr=0.01)
    stayed.run(steps=step, wait=True)
    torch.testing.assert_close(losses(experiment), losses(stayed), rtol=1e-5, atol=1e-6)
    run.step(3)
    run.wait(120)
    assert (experiment.status, experiment.step_count) == ("paused", step + 3)
    run.stop()
    assert experiment.status == "stopped"
    experiment.modes = ""
    experiment.run(steps=1, wait=True)


@pytest.mark.parametrize("first", ["rate", "modes"])
def test_a_rate_that_is_set_with_a_toggle_is_not_lost(tmp_path: Path, first: str) -> None:
    experiment = made(tmp_path / "runs", Net, lr=0.01, modes="ddp:2")
    rates: list[float | None] = []
    reached, back = threading.Event(), threading.Event()

    def on_event(event: Event) -> None:
        if event.step >= 5:
            reached.set()
        if isinstance(event, StepDone) and experiment.modes == "fp32":
            rates.append(experiment.learning_rate)
            back.set()

    experiment.subscribe(on_event, every_step=True)
    run = experiment.run(epochs=1_000)
    assert reached.wait(120)
    if first == "rate":
        experiment.learning_rate = 0.02
    experiment.modes = ""  # the workers are recalled, and execute no later command
    if first == "modes":
        experiment.learning_rate = 0.02
    assert back.wait(120)
    run.stop()
    assert experiment.learning_rate == 0.02
    assert set(rates) == {0.02}
    logged = experiment.scalars.since("train/learning_rate", 0)[1].tolist()
    assert logged == sorted(logged)


def test_a_rate_and_an_end_are_sent_to_ranks_at_work(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", Net, lr=0.01, modes="fsdp:2")
    reached, reported = threading.Event(), threading.Event()

    def on_event(event: Event) -> None:
        if event.step >= 5:
            reached.set()
        if isinstance(event, StepDone) and experiment.learning_rate == 0.02:
            reported.set()

    experiment.subscribe(on_event, every_step=True)
    run = experiment.run(epochs=1_000)
    assert reached.wait(120)
    experiment.learning_rate = 0.02
    assert reported.wait(120)
    experiment.epochs = experiment.epoch + 3
    run.wait(120)
    assert experiment.status == "finished"
    assert experiment.epoch < 1_000
    assert len(list((experiment.path / "parallel").iterdir())) == 1, "it came back in between"
    rates = experiment.scalars.since("train/learning_rate", 0)[1].tolist()
    assert rates == sorted(rates)
    assert {rates[0], rates[-1]} == {0.01, 0.02}
    assert [marker.text for marker in experiment.markers] == ["lr 2e-2"]


def falling(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.999**step)


@pytest.mark.parametrize("recalled", [False, True])
def test_a_schedule_is_removed_from_ranks_at_work(tmp_path: Path, recalled: bool) -> None:
    """At work; or recalled already, so that they execute no later command."""
    experiment = made(tmp_path / "runs", Net, lr=0.01, modes="fsdp:2", scheduler=falling)
    reached, constant = threading.Event(), threading.Event()
    after: list[float | None] = []

    def on_event(event: Event) -> None:
        if event.step >= 5:
            reached.set()
        if isinstance(event, StepDone) and experiment.scheduler is None:
            after.append(experiment.learning_rate)
            if len(after) > 20:
                constant.set()

    experiment.subscribe(on_event, every_step=True)
    run = experiment.run(epochs=1_000)
    assert reached.wait(120)
    if recalled:
        experiment.modes = ""
    experiment.scheduler = None
    assert constant.wait(120)
    run.stop()
    run.wait(120)
    removed = next(marker for marker in experiment.markers if "constant" in marker.text)
    rate = experiment.learning_rate
    said, _, rounded = removed.text.rpartition(" ")
    assert said == ("off, constant lr" if recalled else "constant lr")
    assert float(rounded) == float(f"{rate:.1e}")
    assert set(after) == {rate}
    assert experiment.scheduler is None
    assert "initial_lr" not in experiment.optimizer.param_groups[0]
    steps, logged = experiment.scalars.since("train/learning_rate", 0)
    falls = [value for step, value in zip(steps, logged, strict=True) if step <= removed.step]
    assert falls == sorted(falls, reverse=True)
    assert falls[0] == 0.01
    assert logged[-1] == pytest.approx(rate, rel=1e-6)
    assert {float(value) for value in logged[-5:]} == {float(logged[-1])}


def test_a_rate_scales_the_schedule_of_ranks(tmp_path: Path) -> None:
    """What comes back is a schedule that goes on from the rate that was set."""
    experiment = made(tmp_path / "runs", Net, lr=0.01, modes="ddp:2", scheduler=falling)
    reached, reported = threading.Event(), threading.Event()
    said: list[str] = []

    def on_event(event: Event) -> None:
        if event.step >= 5:
            reached.set()
        said.append(experiment.message)
        if isinstance(event, StepDone) and (experiment.learning_rate or 0) > 0.1:
            reported.set()

    experiment.subscribe(on_event, every_step=True)
    run = experiment.run(epochs=1_000)
    assert reached.wait(120)
    experiment.lr = 0.2
    assert reported.wait(120)
    run.pause()
    run.wait(120)
    scheduler: Any = experiment.scheduler
    assert scheduler.base_lrs == [experiment.optimizer.param_groups[0]["initial_lr"]]
    made_for = scheduler.base_lrs[0] * 0.999**scheduler.last_epoch
    assert experiment.learning_rate == pytest.approx(made_for, rel=1e-9)
    _, logged = experiment.scalars.since("train/learning_rate", 0)
    assert max(logged) == pytest.approx(0.2, rel=1e-6)
    assert any(one.endswith("lr 2e-1, and LambdaLR is scaled with it") for one in said)
