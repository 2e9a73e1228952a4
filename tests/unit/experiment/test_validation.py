"""Validation: numbers a person could compute by hand, and no trace in the training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from workbench.experiment import Experiment, RunError
from workbench.experiment.events import EpochDone, Event


class Flags(nn.Module):
    """One module is frozen in eval mode on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.BatchNorm1d(4).eval()
        self.drop = nn.Dropout(0.9)
        self.head = nn.Linear(4, 3)
        self.fail = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fail and not self.training:
            raise ValueError("only in validation")
        return self.head(self.drop(self.frozen(x)))


def data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, 4, generator=generator), torch.arange(n) % 3


def test_numbers_agree_with_a_hand_computation(tmp_path: Path) -> None:
    model, val = Flags(), data(50)
    exp = Experiment(model, data(64), val, batch_size=16, runs=tmp_path, device="cpu")
    epochs: list[EpochDone] = []

    def note(event: Event) -> None:
        if isinstance(event, EpochDone):
            epochs.append(event)

    exp.subscribe(note)
    exp.run(epochs=2, wait=True)
    assert (model.training, model.frozen.training, model.drop.training) == (True, False, True)
    model.eval()
    with torch.no_grad():
        logits = model(val[0])
    answers = logits.argmax(1)
    metrics = exp.scalars.history()
    assert metrics["val/loss"]["step"].tolist() == [4, 8]
    assert metrics["val/loss"]["value"][-1] == pytest.approx(
        float(F.cross_entropy(logits, val[1])), abs=1e-6
    )
    accuracy = float((answers == val[1]).double().mean())
    assert metrics["val/accuracy"]["value"][-1] == pytest.approx(accuracy)
    assert exp.best_accuracy == max(metrics["val/accuracy"]["value"])
    assert [event.epoch for event in epochs] == [1, 2]
    confusion = epochs[-1].confusion
    assert confusion is not None
    expected = torch.zeros(3, 3, dtype=torch.int64)
    for truth, answer in zip(val[1].tolist(), answers.tolist(), strict=True):
        expected[truth, answer] += 1
    assert torch.equal(confusion, expected)
    exp.close()


def test_a_validation_that_raises_is_repeated_and_costs_no_step(tmp_path: Path) -> None:
    model = Flags()
    exp = Experiment(model, data(64), data(10), batch_size=16, runs=tmp_path, device="cpu")
    model.fail = True
    with pytest.raises(RunError, match="only in validation"):
        exp.run(epochs=2).wait(30)
    assert exp.failure is not None
    assert exp.failure.subtitle.startswith("It was raised while validating.")
    assert model.training, "it was left in eval mode"
    model.fail = False
    exp.resume().wait(30)
    assert exp.step_count == 8
    assert exp.scalars.since("val/loss", 0)[0].tolist() == [4, 8]
    exp.close()


def test_a_model_given_in_eval_mode_is_trained_and_it_is_said(tmp_path: Path) -> None:
    exp = Experiment(nn.Sequential(nn.Linear(4, 3)).eval(), data(8), runs=tmp_path, device="cpu")
    exp.run(wait=True)
    assert exp.model.training
    assert any("eval mode" in note for note in exp.notes)
    exp.close()
