"""What can be set of an experiment at any time, and what a closed one refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

from workbench.experiment import Experiment, out_of_memory
from workbench.memory import MemoryProbe, memory
from workbench.memory.cards.out_of_memory import OutOfMemoryTool


def experiment(folder: Path) -> Experiment:
    torch.manual_seed(0)
    data = torch.randn(32, 6), torch.arange(32) % 3
    return Experiment(nn.Linear(6, 3), data, data, batch_size=16, device="cpu", runs=folder)


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
    "epochs": setting("epochs", 7),
}


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("status", ["idle", "finished"])
def test_a_closed_experiment_refuses_whatever_is_asked_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, status: str
) -> None:
    monkeypatch.setattr(out_of_memory, "_tools", [OutOfMemoryTool])
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
    data = TensorDataset(torch.randn(32, 6), torch.arange(32) % 3)
    loader = DataLoader(data, 8, sampler=SubsetRandomSampler(range(32)))
    exp = Experiment(nn.Linear(6, 3), loader, device="cpu", runs=tmp_path)
    exp.batch_size = 8
    with pytest.raises(ValueError, match="TensorDataset makes its own"):
        exp.batch_size = 4
    assert exp.batch_size == 8
    exp.close()
