"""Predictions and evaluations are a plain model's, and no run notices them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from workbench.experiment import Experiment
from workbench.experiment.data import DataError
from workbench.experiment.events import Event, StepDone


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


def losses(experiment: Experiment) -> list[float]:
    experiment.scalars.flush()
    return experiment.scalars.since("train/loss", 0)[1].tolist()


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
