"""Predictions and evaluations are a plain model's, and no run notices them."""

from __future__ import annotations

import itertools
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.unit.experiment.experiments import losses
from workbench.experiment import Experiment
from workbench.experiment.data.data import DataError
from workbench.experiment.report.events import Event, StepDone


def data(count: int = 70) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 6, generator=generator), torch.arange(count) % 3


class Net(nn.Module):
    """Draws, norms by the batch, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.4))
        self.head = nn.Linear(8, 3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.head(self.body(x).relu()) + 0.001 * self.calls * self.training


def made(tmp_path: Path, **options: object) -> Experiment:
    torch.manual_seed(3)
    return Experiment(
        Net(), data(), data(30), batch_size=16, runs=tmp_path, device="cpu", **options
    )  # type: ignore[arg-type]


def by_hand(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        found = model(x)
    model.train()
    return found


def test_they_are_those_of_the_model_in_eval_mode(tmp_path: Path) -> None:
    exp = made(tmp_path)
    exp.run(epochs=1, wait=True)
    x, y = data(50)
    logits = by_hand(exp.model, x)
    assert torch.allclose(exp.predict(x), logits, atol=1e-6)
    assert torch.allclose(exp.predict(x.double().numpy()), logits, atol=1e-6)
    assert torch.allclose(exp.predict(x[:3]), logits[:3], atol=1e-6)
    for given in ((x, y), (x.numpy(), y.numpy()), DataLoader(TensorDataset(x, y), 7)):
        found = exp.evaluate(given)
        assert found.loss == pytest.approx(F.cross_entropy(logits, y).item(), rel=1e-5)
        assert found.accuracy == (logits.argmax(1) == y).double().mean().item()
        assert found.confusion is not None
        assert found.confusion.sum() == 50
    assert not exp.predict(x).requires_grad
    exp.close()


def test_a_run_that_is_asked_at_every_turn_goes_as_one_that_is_not(tmp_path: Path) -> None:
    alone = made(tmp_path)
    alone.predict(data(9)[0])  # before the first step too
    alone.run(epochs=4, wait=True)
    asked = made(tmp_path)
    turns = 0
    run = asked.run(epochs=4)
    while asked.status == "training":
        asked.predict(data(9)[0])
        asked.evaluate(data(9))
        turns += 1
    run.wait()
    asked.evaluate(data(9))
    assert turns
    assert losses(asked) == losses(alone)
    for one, other in zip(
        asked.model.state_dict().values(), alone.model.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other)
    assert asked.model.calls == alone.model.calls
    assert asked.model.training
    assert asked.notes == []
    for exp in (alone, asked):
        exp.close()


def test_the_modes_of_the_next_step_hold(tmp_path: Path) -> None:
    exp = made(tmp_path)
    exp.run(epochs=1, wait=True)
    x = data(16)[0]
    with torch.autocast("cpu", torch.bfloat16):
        rounded = by_hand(exp.model, x)
    exp.modes = "bf16"
    assert torch.equal(exp.predict(x).float(), rounded.float())
    exp.close()


def test_what_a_model_refuses_is_told_as_it_was_taken(tmp_path: Path) -> None:
    exp = made(tmp_path)
    with pytest.raises(RuntimeError) as refused:
        exp.predict(torch.randn(5))
    assert refused.value.__notes__ == [
        "predict was given [5] fp32: 5 samples of shape []. Of a single one give x[None]"
    ]
    with pytest.raises(Exception, match="str") as refused:
        exp.predict("hello")
    assert refused.value.__notes__ == ["predict was given 'hello'"]
    assert exp.predict(data()[0][:1]).shape == (1, 3)


def test_what_cannot_be_asked_is_answered(tmp_path: Path) -> None:
    exp = made(tmp_path)
    with pytest.raises(DataError, match="nothing to predict for"):
        exp.predict(None)
    with pytest.raises(DataError, match="data holds no samples"):
        exp.evaluate((np.zeros((0, 6)), np.zeros(0)))
    said: list[str] = []

    def ask(event: Event) -> None:
        if isinstance(event, StepDone) and not said:
            try:
                exp.predict(data()[0])
            except RuntimeError as error:
                said.append(str(error))

    exp.subscribe(ask, every_step=True)
    exp.run(epochs=1, wait=True)
    assert "on the thread that trains" in said[0]
    exp.close()
    with pytest.raises(RuntimeError, match="is closed"):
        exp.predict(data()[0])


class ScheduleFree(torch.optim.SGD):
    """Evaluates a mean of the weights it trains; the way there and back is not exact."""

    def __init__(self, parameters: object) -> None:
        super().__init__(parameters, lr=0.1)  # type: ignore[arg-type]
        self.is_training = True

    @torch.no_grad()
    def _toward(self, weight: float) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if "z" in self.state[p]:
                    p.lerp_(self.state[p]["z"], weight)

    def eval(self) -> None:
        if self.is_training:
            self._toward(1 - 1 / 0.9)
        self.is_training = False

    def train(self) -> None:
        if not self.is_training:
            self._toward(1 - 0.9)
        self.is_training = True

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                z = self.state[p].setdefault("z", p.clone())
                p.lerp_(z, 0.1).sub_(p.grad, alpha=0.01)
                z.sub_(p.grad, alpha=0.1)


class Merges(nn.Linear):
    """Low-rank weights that are merged in eval mode, as loralib does it."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.a = nn.Parameter(torch.randn(2, sizes[0]) / 3)
        self.b = nn.Parameter(torch.randn(sizes[1], 2) / 3)
        self.is_merged = False
        self.fails = False

    def train(self, mode: bool = True) -> Merges:
        super().train(mode)
        if self.fails and not mode:
            raise ValueError("no eval mode")
        if mode is self.is_merged:
            self.weight.data.add_(self.b.detach() @ self.a.detach(), alpha=-1 if mode else 1)
            self.is_merged = not mode
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        return out if self.is_merged else out + x @ self.a.T @ self.b.T


@pytest.mark.parametrize("look", ["predict", "evaluate"])
@pytest.mark.parametrize("kind", ["optimizer", "module"])
def test_weights_that_eval_mode_writes_are_as_before(tmp_path: Path, look: str, kind: str) -> None:
    found: list[list[float]] = []
    for looks in (0, 3):
        torch.manual_seed(3)
        layer = nn.Linear if kind == "optimizer" else Merges
        model = nn.Sequential(layer(6, 16), nn.ReLU(), layer(16, 3))
        optimizer = ScheduleFree if kind == "optimizer" else torch.optim.SGD
        exp = Experiment(
            model, data(), optimizer=optimizer(model.parameters()),  # type: ignore[arg-type]
            batch_size=16, runs=tmp_path, device="cpu",
        )  # fmt: skip
        for _ in range(3):
            exp.run(steps=4, wait=True)
            before = {name: value.clone() for name, value in model.state_dict().items()}
            for _ in range(looks):
                exp.predict(data()[0]) if look == "predict" else exp.evaluate(data(30))
            torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
        found.append(losses(exp))
        exp.close()
    assert found[0] == found[1]


class Queues(nn.Module):
    """Keeps what it has seen in a list, a dictionary and a queue, and goes by them."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.sizes: list[int] = []
        self.sums: dict[str, list[float]] = {"x": []}
        self.means: deque[torch.Tensor] = deque(maxlen=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(x))
        self.sums["x"].append(float(x.sum()))
        self.means.append(x.detach().mean(0))
        scale = 1 + 0.01 * len(self.sizes) + 0.001 * sum(self.sums["x"])
        return self.head(x + sum(self.means)) * scale


@pytest.mark.parametrize("look", ["nothing", "predict", "modes"])
def test_what_a_model_keeps_in_lists_is_as_before_a_look(tmp_path: Path, look: str) -> None:
    """A prediction, and a forward under the modes before, to compare."""
    torch.manual_seed(3)
    exp = Experiment(
        Queues(), data(64), batch_size=16, runs=tmp_path, device="cpu", shuffle=False,
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1),
    )  # fmt: skip
    torch.manual_seed(3)
    expected, x, y = Queues(), *data(64)
    optimizer, right = torch.optim.SGD(expected.parameters(), 0.1), list[float]()
    for rows in (slice(at, at + 16) for at in (0, 16, 32, 48)):
        optimizer.zero_grad()
        loss = F.cross_entropy(expected(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        right.append(loss.item())
    exp.run(steps=2, wait=True)
    if look == "predict":
        exp.predict(x)
    if look == "modes":
        exp.modes = "attention:math"
    exp.run(steps=2, wait=True)
    assert losses(exp) == right
    exp.close()


def test_modes_are_as_before_where_eval_mode_itself_raises(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Dropout(0.1), Merges(6, 3))
    exp = Experiment(model, data(), batch_size=16, runs=tmp_path, device="cpu")
    exp.run(steps=2, wait=True)
    model[1].fails = True
    with pytest.raises(ValueError, match="no eval mode"):
        exp.predict(data()[0])
    assert [module.training for module in model.modules()] == [True] * 3
    model[1].fails = False
    exp.run(steps=2, wait=True)
    assert exp.notes == []
    exp.close()


def test_a_prediction_under_inference_mode_leaves_nothing_of_its_kind(tmp_path: Path) -> None:
    """Before the first run: what is remembered for its steps is made there."""
    found: list[list[float]] = []
    for inference in (False, True):
        torch.manual_seed(3)
        model = Net()
        model.register_buffer("table", torch.zeros(2**20 + 1))
        with torch.inference_mode(inference):
            exp = Experiment(model, data(), batch_size=16, runs=tmp_path, device="cpu")
            exp.predict(data()[0])
            exp.evaluate(data(30))
        exp.run(epochs=2, wait=True)
        exp.predict(data()[0])
        found.append(losses(exp))
        exp.close()
    assert found[0] == found[1]


# -- the loss -------------------------------------------------------------------------------------


def run_of(tmp_path: Path, train: Any, loss: Any, looks: list[Any]) -> Experiment:
    torch.manual_seed(3)
    exp = Experiment(
        nn.Linear(6, 3), train, train, loss=loss, batch_size=16, runs=tmp_path, device="cpu"
    )
    for one in looks:
        exp.evaluate(one)
    exp.run(wait=True)
    exp.close()
    return exp


def test_a_look_before_the_first_step_does_not_choose_the_loss(tmp_path: Path) -> None:
    """Soft labels stand for binary cross entropy, and classes for cross entropy."""
    x, of = data()
    soft = x, 0.8 * F.one_hot(of, 3).float() + 0.2 / 3
    alone = run_of(tmp_path, soft, None, [])
    asked = run_of(tmp_path, soft, None, [(x, of)])
    assert asked.loss_name == alone.loss_name
    assert losses(asked) == losses(alone)


def test_a_look_at_labels_of_another_kind_leaves_the_accuracy(tmp_path: Path) -> None:
    x, of = data()

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, labels)

    alone = run_of(tmp_path, (x, of), loss, [])
    asked = run_of(tmp_path, (x, of), loss, [(x, x[:, :3]), (x[:5], x[:5, :3])])
    for name in ("train/accuracy", "val/accuracy", "val/loss"):
        assert asked.scalars.last(name) == alone.scalars.last(name) != []


@pytest.mark.parametrize("what", ["a tuple", "no reduction"])
def test_what_is_no_loss_is_said_before_the_first_step_too(tmp_path: Path, what: str) -> None:
    def loss(logits: torch.Tensor, labels: torch.Tensor) -> Any:
        each = F.cross_entropy(logits, labels, reduction="none")
        return each if what == "no reduction" else (each.mean(), 1)

    exp = made(tmp_path, loss=loss)
    sentence = "must be a scalar tensor" if what == "a tuple" else "must be one number"
    with pytest.raises(DataError, match=sentence):
        exp.evaluate(data())
    exp.close()


def test_a_loss_whose_state_cannot_be_put_back_is_named(tmp_path: Path) -> None:
    calls = itertools.count(1)

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, labels) / next(calls)

    exp = made(tmp_path, loss=loss)
    exp.evaluate(data())
    (note,) = (one for one in exp.notes if one.startswith("an evaluation has called loss"))
    assert "(calls, a count)" in note
    exp.close()
