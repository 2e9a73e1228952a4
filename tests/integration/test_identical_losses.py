"""The loss sequence is the same, bit for bit, however the training is driven and watched."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.integration.support import chart
from workbench.experiment import EpochSampler, Experiment, StepContext, StepProbe
from workbench.records import Record

SEED, BATCH, EPOCHS = 7, 32, 3
STEPS = EPOCHS * 10


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(300, 1, 8, 8, generator=generator)
    return inputs, torch.randint(0, 5, (300,), generator=generator)


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(512, 5),
    )


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2)


def by_hand() -> list[float]:
    """The loop a person would write."""
    inputs, targets = data()
    net = model()
    optimizer = adam(net.parameters())
    sampler = EpochSampler(len(inputs), SEED)
    losses: list[float] = []
    torch.manual_seed(SEED)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for rows in sampler.indices().split(BATCH):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def expected() -> list[float]:
    return by_hand()


def experiment(tmp_path: Path, train: object = None, **options: Any) -> Experiment:
    settings: dict[str, Any] = {
        "optimizer": adam, "batch_size": BATCH, "seed": SEED, "device": "cpu", **options
    }  # fmt: skip
    return Experiment(model(), data() if train is None else train, runs=tmp_path, **settings)


def losses(exp: Experiment) -> list[float]:
    exp.scalars.flush()
    steps, values = exp.scalars.since("train/loss", 0)
    assert steps.tolist() == list(range(1, STEPS + 1)), "a step was lost or done twice"
    return values.tolist()


def draw_in_a_cell() -> None:
    torch.randn(1000)
    torch.manual_seed(999)


def test_waiting(tmp_path: Path, expected: list[float]) -> None:
    exp = experiment(tmp_path)
    exp.run(epochs=EPOCHS, wait=True)
    assert losses(exp) == expected


def test_validation_changes_nothing(tmp_path: Path, expected: list[float]) -> None:
    exp = experiment(tmp_path, val=data())
    exp.run(epochs=EPOCHS, wait=True)
    assert losses(exp) == expected


def test_pauses_with_cells_in_between(tmp_path: Path, expected: list[float]) -> None:
    exp = experiment(tmp_path)
    run = exp.run(epochs=EPOCHS)
    for _ in range(5):
        run.pause()
        run.wait()
        draw_in_a_cell()
        if exp.status == "paused":
            run.resume()
    run.wait()
    assert exp.status == "finished"
    assert losses(exp) == expected


def test_single_steps(tmp_path: Path, expected: list[float]) -> None:
    exp = experiment(tmp_path, epochs=EPOCHS)
    for count in itertools.cycle((1, 2, 3)):
        exp.step(count).wait()
        draw_in_a_cell()
        if exp.status == "finished":
            break
    assert losses(exp) == expected


def test_stop_and_several_runs(tmp_path: Path, expected: list[float]) -> None:
    exp = experiment(tmp_path)
    exp.run(steps=4, wait=True)
    draw_in_a_cell()
    exp.run(epochs=1, wait=True)
    exp.step(3).wait()
    exp.stop()
    draw_in_a_cell()
    exp.run(epochs=2, wait=True)
    assert losses(exp) == expected


class Looker(StepProbe):
    """Reads what a probe may read, in every hook."""

    kind = "memory"

    def before_step(self, context: StepContext) -> None:
        self.seen = [context.step]

    def after_forward(self, loss: torch.Tensor) -> None:
        self.seen.append(loss.detach().item())

    def finish(self) -> Record:
        return chart(int(self.seen[0]))


def test_observers_and_probes(tmp_path: Path, expected: list[float]) -> None:
    exp = experiment(tmp_path)
    events: list[object] = []
    unsubscribe = exp.subscribe(events.append, every_step=True)
    handles = [exp.capture(Looker())]
    exp.run(steps=12, wait=True)
    unsubscribe()
    handles += [exp.capture(Looker()), exp.capture(Looker())]
    exp.run(epochs=EPOCHS - 1, wait=True)
    assert losses(exp) == expected
    assert all(handle.done for handle in handles)
    assert len(exp.captures.infos()) == 2  # both of the last two looked at one step
    assert sum(type(event).__name__ == "StepDone" for event in events) == 12


def test_toggling_modes_that_do_not_change_the_numbers(
    tmp_path: Path, expected: list[float]
) -> None:
    exp = experiment(tmp_path)
    for step, modes in enumerate(["attention:math", "", "attention:flash", "fp32"], start=1):
        exp.run(steps=step, wait=True)
        exp.modes = modes
    exp.run(steps=STEPS - 10, wait=True)
    assert losses(exp) == expected


@pytest.mark.parametrize(
    "wrap",
    [
        lambda pair: TensorDataset(*pair),
        lambda pair: DataLoader(TensorDataset(*pair), batch_size=BATCH, shuffle=True),
        lambda pair: (pair[0].numpy(), pair[1].numpy()),
    ],
    ids=["dataset", "loader", "numpy"],
)
def test_every_kind_of_data(
    wrap: Callable[[tuple[torch.Tensor, torch.Tensor]], object],
    tmp_path: Path,
    expected: list[float],
) -> None:
    exp = experiment(tmp_path, wrap(data()))
    exp.run(epochs=EPOCHS, wait=True)
    assert losses(exp) == expected


def test_a_failed_step_leaves_no_trace(tmp_path: Path, expected: list[float]) -> None:
    """An exception between two halves of a forward, then a resume."""
    exp = experiment(tmp_path)
    exp.run(steps=5, wait=True)
    broken = cast("nn.Sequential", exp.model)[4].register_forward_pre_hook(_fail)
    with pytest.raises(ArithmeticError):
        exp.run(epochs=EPOCHS, wait=True)
    broken.remove()
    draw_in_a_cell()
    exp.resume_from_failure().wait()
    assert losses(exp) == expected


def _fail(*_args: object) -> None:
    torch.rand(10)
    raise ArithmeticError("on purpose")
