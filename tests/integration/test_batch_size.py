"""Another batch size within an epoch: each sample is seen once, in the order of the seed."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from workbench.experiment import Experiment, RunError
from workbench.experiment.data.sampler import EpochSampler
from workbench.experiment.report.events import Event, StepDone

COUNT = 100


class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Sample i is filled with i."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((4,), float(index)), torch.tensor(index % 3)


class Seeing(nn.Module):
    """Remembers which samples came, and in batches of what size."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.rows: list[int] = []
        self.sizes: list[int] = []
        self.validated: list[int] = []
        self.fails_at: set[int] = set()
        self.failed: queue.SimpleQueue[int] = queue.SimpleQueue()
        """The steps that have failed: what a model's other attributes hold is put back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            self.validated.append(len(x))
            return self.head(x)
        if len(self.sizes) in self.fails_at and self.failed.empty():
            self.failed.put(len(self.sizes))
            raise RuntimeError("once")
        self.rows += [int(row) for row in x[:, 0]]
        self.sizes.append(len(x))
        return self.head(x / COUNT)


def arrays() -> tuple[torch.Tensor, torch.Tensor]:
    rows = Rows()
    inputs, targets = zip(*(rows[index] for index in range(COUNT)), strict=True)
    return torch.stack(inputs), torch.stack(targets)


SOURCES: dict[str, Any] = {
    "arrays": arrays,
    "dataset": Rows,
    "loader": lambda: DataLoader(Rows(), 16, shuffle=True),
    "workers": lambda: DataLoader(Rows(), 16, shuffle=True, num_workers=2),
}


def experiment(data: Any, folder: Path, **options: Any) -> tuple[Experiment, Seeing]:
    model = Seeing()
    chosen = {"batch_size": 16, "device": "cpu", "runs": folder, **options}
    return Experiment(model, data, **chosen), model


def order(epochs: int) -> list[int]:
    sampler = EpochSampler(COUNT, 0)
    found: list[int] = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        found += list(sampler)
    return found


@pytest.mark.parametrize("kind", SOURCES)
def test_no_sample_is_lost_or_seen_twice(kind: str, tmp_path: Path) -> None:
    exp, model = experiment(SOURCES[kind](), tmp_path, epochs=2)
    exp.step(3).wait()
    done = exp.step_count
    exp.batch_size = 5
    assert exp.batch_size == 5
    left = -(-(COUNT - 16 * done) // 5)
    assert exp.steps_per_epoch == done + left
    assert exp.total_steps == done + left + 20
    exp.step(2).wait()
    exp.batch_size = 40
    exp.resume().wait()
    assert exp.status == "finished"
    assert model.rows == order(2)
    assert set(model.sizes[:done]) == {16}
    assert model.sizes[done : done + 2] == [5, 5]
    assert max(model.sizes) == 40
    assert [marker.text for marker in exp.markers] == ["batch 5", "batch 40"]
    assert exp.step_count == len(model.sizes) == exp.total_steps
    exp.close()


def test_a_batch_whose_step_failed_is_cut_anew(tmp_path: Path) -> None:
    exp, model = experiment(arrays(), tmp_path)
    model.fails_at.add(2)
    exp.run(epochs=1)
    with pytest.raises(RunError, match="once"):
        exp.wait()
    assert exp.status == "exception"
    exp.batch_size = 4
    exp.resume_from_failure().wait(120)
    assert model.sizes[:4] == [16, 16, 4, 4]
    assert model.rows == order(1)
    exp.close()


def test_it_may_change_while_it_trains(tmp_path: Path) -> None:
    exp, model = experiment(arrays(), tmp_path)
    run = exp.run(epochs=30)
    for size in (7, 64, 3, 100, 1, 33):
        exp.batch_size = size
        while exp.batch_size != size and exp.status == "training":
            pass
    run.wait(120)
    assert model.rows == order(30)
    exp.close()


def test_the_last_of_several_sizes_asked_for_at_once_wins(tmp_path: Path) -> None:
    exp, model = experiment(arrays(), tmp_path, val=arrays())
    inside, go_on = threading.Event(), threading.Event()

    def hold(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 1:
            inside.set()
            assert go_on.wait(300)

    exp.subscribe(hold, every_step=True)
    run = exp.run(epochs=1)
    assert inside.wait(120)
    exp.batch_size = 5
    exp.batch_size = 16
    go_on.set()
    run.wait(120)
    assert (exp.batch_size, exp.val_batch_size) == (16, 16)
    assert model.sizes == [16] * 6 + [4]
    assert model.rows == order(1)
    exp.close()


def test_validation_that_does_not_follow_may_have_any_size(tmp_path: Path) -> None:
    val = DataLoader(Rows(), 10, drop_last=True)
    exp, _ = experiment(arrays(), tmp_path, val=val)
    exp.batch_size = 128  # more than validation has samples, in batches that are all whole
    assert (exp.batch_size, exp.val_batch_size) == (128, 10)
    exp.batch_size = 10
    with pytest.raises(ValueError, match="drop_last, no batch would be left"):
        exp.batch_size = 128
    assert (exp.batch_size, exp.val_batch_size) == (10, 10)
    exp.close()


def test_whole_batches_only_where_the_loader_wants_them(tmp_path: Path) -> None:
    loader = DataLoader(Rows(), 16, shuffle=True, drop_last=True)
    exp, model = experiment(loader, tmp_path)
    exp.step(2).wait()
    exp.batch_size = 10
    exp.run(epochs=1, wait=True)
    assert model.sizes == [16, 16] + [10] * 6
    assert exp.steps_per_epoch == 10, "of the next epoch"
    with pytest.raises(ValueError, match="drop_last, no batch would be left"):
        exp.batch_size = 101
    exp.close()


def test_validation_follows_where_it_was_as_large(tmp_path: Path) -> None:
    exp, model = experiment(arrays(), tmp_path, val=arrays())
    exp.batch_size = 50
    assert exp.val_batch_size == 50
    exp.val_batch_size = 100
    exp.batch_size = 25
    assert exp.val_batch_size == 100
    exp.run(epochs=1, wait=True)
    assert model.validated == [100]
    exp.close()


def test_what_cannot_be_a_batch_size_is_said(tmp_path: Path) -> None:
    exp, _ = experiment(arrays(), tmp_path)
    refused: list[Any] = [0, -3, 2.5, "8", True]
    for bad in refused:
        with pytest.raises(ValueError, match="must be a whole number from 1"):
            exp.batch_size = bad
    with pytest.raises(ValueError, match="no validation data"):
        exp.val_batch_size = 4
    exp.close()
    foreign, _ = experiment(list(DataLoader(TensorDataset(*arrays()), 20)), tmp_path)
    assert foreign.batch_size is None
    with pytest.raises(ValueError, match="list makes its own"):
        foreign.batch_size = 4
    foreign.close()
