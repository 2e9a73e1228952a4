"""A loss of several parts: judged by a plain loop that keeps each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.unit.experiment.experiments import experiment, losses, sgd
from tests.unit.experiment.plain_loop import batches, data, linear, plain_loop, seeded
from workbench.experiment import DataError, RunError

HELD_OUT = data(40, seed=9)


def of_parts(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    main, penalty = F.cross_entropy(logits, labels), logits.pow(2).mean()
    return {"loss": main + 0.1 * penalty, "main": main, "penalty": penalty, "weight": 0.1}


def values(exp: Any, name: str) -> list[float]:
    exp.scalars.flush()
    return exp.scalars.since(name, 0)[1].tolist()


@pytest.mark.parametrize("modes", ["", "fp16", "bf16"])
def test_each_part_is_logged_and_the_loss_is_trained_on(tmp_path: Path, modes: str) -> None:
    model = seeded(linear)
    kept: list[dict[str, Any]] = []

    def judge(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        kept.append(of_parts(logits, labels))
        return kept[-1]["loss"]

    expected = plain_loop(model, batches(data()), sgd(model.parameters()), loss_of=judge)
    exp = experiment(tmp_path, seeded(linear), loss=of_parts, val=HELD_OUT, modes=modes)
    exp.run(epochs=1, wait=True)
    if not modes:
        assert losses(exp) == expected
        for name in ("main", "penalty"):
            assert values(exp, f"train/{name}") == [one[name].item() for one in kept]
        for own, one in zip(exp.model.parameters(), model.parameters(), strict=True):
            assert torch.equal(own, one)
    assert values(exp, "train/weight") == pytest.approx([0.1] * 4)
    assert losses(exp) == pytest.approx(
        [
            a + 0.1 * b
            for a, b in zip(values(exp, "train/main"), values(exp, "train/penalty"), strict=True)
        ],
        rel=1e-2,
    )
    exp.close()


def test_validation_has_their_means(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear), loss=of_parts, val=HELD_OUT)
    exp.run(epochs=1, wait=True)
    with torch.no_grad():
        whole = of_parts(exp.model(HELD_OUT[0]), HELD_OUT[1])
    for name in ("loss", "main", "penalty"):
        assert values(exp, f"val/{name}") == pytest.approx([whole[name].item()], rel=1e-6)
    assert exp.evaluate(HELD_OUT).parts["main"] == pytest.approx(whole["main"].item(), rel=1e-6)
    assert values(exp, "val/accuracy")
    exp.close()


def test_a_loss_that_returns_parts_at_times_only(tmp_path: Path) -> None:
    calls = 0

    def at_times(logits: torch.Tensor, labels: torch.Tensor) -> Any:
        nonlocal calls
        calls += 1
        loss = F.cross_entropy(logits, labels)
        return {"loss": loss, "odd": loss * 2} if calls % 2 else loss

    exp = experiment(tmp_path, seeded(linear), loss=at_times)
    exp.run(epochs=1, wait=True)
    exp.scalars.flush()
    steps, odd = exp.scalars.since("train/odd", 0)
    assert steps.tolist() == [1, 3]
    assert odd.tolist() == [2 * loss for loss in losses(exp)[::2]]
    exp.close()


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ({"main": 1.0}, "one of its entries must be 'loss'"),
        ({}, "one of its entries must be 'loss'"),
        ({"loss": None, "accuracy": 1.0}, "'accuracy', which is taken"),
        ({"loss": None, 3: 1.0}, "is no string"),
        ({"loss": None, "rows": torch.ones(3)}, "it must be one number"),
        ({"loss": None, "text": "a"}, "it must be one number"),
    ],
)
def test_what_is_no_part_is_refused(tmp_path: Path, returned: dict[Any, Any], says: str) -> None:
    def wrong(logits: torch.Tensor, labels: torch.Tensor) -> Any:
        found = dict(returned)
        if "loss" in found:
            found["loss"] = F.cross_entropy(logits, labels)
        return found

    exp = experiment(tmp_path, seeded(linear), loss=wrong)
    with pytest.raises((DataError, RunError), match=says):
        exp.run(epochs=1, wait=True)
    exp.close()


def test_a_part_is_as_it_was_when_it_was_computed(tmp_path: Path) -> None:
    """A trained number, which the update of the same step writes."""

    class Tempered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.temperature = nn.Parameter(torch.ones(()))
            self.seen: list[float] = []

        def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            self.seen.append(self.temperature.item())
            loss = F.cross_entropy(logits * self.temperature, labels)
            return {"loss": loss, "temperature": self.temperature}

    loss = Tempered()
    exp = experiment(
        tmp_path, seeded(linear), loss=loss, optimizer=lambda p: torch.optim.SGD(p, lr=0.5)
    )
    exp.run(epochs=2, wait=True)
    assert values(exp, "train/temperature") == loss.seen
    assert len(set(loss.seen)) > 4
    exp.close()


def test_a_mean_is_over_the_batches_that_had_the_part(tmp_path: Path) -> None:
    calls = 0

    def at_times(logits: torch.Tensor, labels: torch.Tensor) -> Any:
        nonlocal calls
        calls += 1
        loss = F.cross_entropy(logits, labels)
        return {"loss": loss, "one": 1.0} if calls % 2 else {"loss": loss}

    exp = experiment(tmp_path, seeded(linear), loss=at_times, val=HELD_OUT)
    exp.run(epochs=1, wait=True)
    assert values(exp, "val/one") == [1.0]
    exp.close()
