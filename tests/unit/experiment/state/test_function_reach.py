"""What a function gets at by name: what it looks up, and nothing that is only called alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.unit.experiment.plain_loop import BATCH, batches, data, evaluated, linear, seeded
from workbench.experiment import Experiment
from workbench.experiment.state.function_reach import reached

cross_entropy = nn.CrossEntropyLoss(ignore_index=0)
"""As a cell may have it from an earlier try."""
criterion = nn.CrossEntropyLoss()


def by_attribute(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, labels)


def by_name(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.stack([criterion(outputs, labels) for _ in range(2)]).mean()


def by_a_function_inside(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    def inner() -> torch.Tensor:
        return criterion(outputs, labels)

    return inner()


def test_an_attribute_is_no_global_of_its_name() -> None:
    found = dict(reached(by_attribute))
    assert "cross_entropy" not in found
    assert found["F"] is F


@pytest.mark.parametrize("function", [by_name, by_a_function_inside])
def test_a_global_is_found_wherever_it_is_looked_up(function: object) -> None:
    assert dict(reached(function))["criterion"] is criterion


def test_accuracy_goes_by_no_global_that_the_loss_never_uses(tmp_path: Path) -> None:
    model = seeded(linear)
    exp = Experiment(
        model,
        batches(data()),
        batches(data()),
        loss=by_attribute,
        batch_size=BATCH,
        runs=tmp_path,
        device="cpu",
    )
    run = exp.run(epochs=1, wait=True)
    assert run.metrics["val/accuracy"]["value"][-1] == evaluated(model, batches(data()))[1]
