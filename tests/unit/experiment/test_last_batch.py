"""Batches of one sample before batch norm, which has no variance of one, against a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

from tests.unit.experiment.experiments import experiment, losses, sgd
from tests.unit.experiment.plain_loop import (
    BATCH,
    CLASSES,
    FEATURES,
    STEPS_PER_EPOCH,
    assert_equal,
    batches,
    data,
    plain_loop,
    seeded,
    weights,
)
from workbench.experiment.data.data import DataError


class Norms(nn.Module):
    """Dropout and a batch norm over pixels come before the one that one sample is too few for."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.3)
        self.pixels = nn.BatchNorm2d(2)
        self.features = nn.BatchNorm1d(FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.pixels(self.drop(x).reshape(len(x), 2, 3, 1)).reshape(len(x), FEATURES)
        return self.head(self.features(h))


def given_as(kind: str) -> tuple[Any, dict[str, Any]]:
    pair = data(65)
    if kind == "arrays":
        return pair, {}
    if kind == "list of batches":
        return batches(pair), {}
    if kind == "batch sampler":
        cut = BatchSampler(SequentialSampler(range(65)), BATCH, drop_last=False)
        return DataLoader(TensorDataset(*pair), batch_sampler=cut), {}
    if kind == "iterable":
        return Batches(pair), {}
    loader = DataLoader(TensorDataset(*pair), BATCH)
    return loader, {"order": "loader"} if kind == "loader's order" else {}


class Batches:
    """Nobody knows how many."""

    def __init__(self, pair: Any) -> None:
        self.pair = pair

    def __iter__(self) -> Iterator[Any]:
        return iter(batches(self.pair))


KINDS = ["arrays", "loader", "loader's order", "list of batches", "batch sampler", "iterable"]
DRAWING = ("loader's order", "batch sampler")
"""Whose passes draw a seed."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [(), (3, 2, 6)])
def test_a_last_batch_of_one_is_left_out_before_batch_norm(
    tmp_path: Path, kind: str, steps: tuple[int, ...]
) -> None:
    """Numbers of a loop with drop_last: losses, weights, running statistics, dropout's draws."""
    expected, model = seeded(Norms), seeded(Norms)
    loader: Any = DataLoader(TensorDataset(*data(65)), BATCH, drop_last=True)
    if kind not in DRAWING:
        loader = [pair for pair in batches(data(65)) if len(pair[0]) == BATCH]
    right = plain_loop(expected, loader, sgd(expected.parameters()), epochs=3)
    train, options = given_as(kind)
    exp = experiment(tmp_path, model, train, **options)
    for count in steps:
        exp.run(steps=count, wait=True)
    exp.run(epochs=1 if steps else 3, wait=True)
    exp.close()
    assert (exp.status, exp.step_count) == ("finished", 3 * STEPS_PER_EPOCH)
    assert losses(exp) == right
    assert_equal(model, expected)
    said = [note for note in exp.notes if "is left out" in note]
    assert len(said) == 1, exp.notes
    has_size = kind in ("arrays", "loader", "loader's order")
    words = "one sample left over by batches of 16" if has_size else "has one sample and is left"
    assert words in said[0]


def test_a_last_batch_of_one_is_left_out_by_a_compiled_model(tmp_path: Path) -> None:
    """Dynamo raises an error of its own where the layer refuses it."""
    exp = experiment(tmp_path, seeded(Norms), data(65), modes="compile")
    exp.run(epochs=3, wait=True)
    exp.close()
    assert (exp.status, exp.step_count) == ("finished", 3 * STEPS_PER_EPOCH)
    assert len([note for note in exp.notes if "is left out" in note]) == 1, exp.notes


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_counted_without_the_batch_that_is_left_out(tmp_path: Path, kind: str) -> None:
    train, options = given_as(kind)
    exp = experiment(tmp_path, seeded(Norms), train, epochs=3, **options)
    known = kind != "iterable"
    assert (exp.steps_per_epoch, exp.total_steps) == ((4, 12) if known else (0, 0))
    exp.run(steps=2, wait=True)
    assert exp.steps_per_epoch == (4 if known else 0)
    exp.run(steps=4, wait=True)
    assert exp.steps_per_epoch == 4
    exp.run(epochs=2)
    exp.wait()
    assert (exp.step_count, exp.total_steps, exp.steps_per_epoch) == (12, 12, 4)
    exp.close()


def test_steps_are_counted_with_it_where_nothing_refuses_it(tmp_path: Path) -> None:
    """Batch norm over a sequence takes one sample; the first epoch shows it."""

    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = nn.BatchNorm1d(2), nn.Linear(FEATURES, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(x.reshape(len(x), 2, 3)).flatten(1))

    exp = experiment(tmp_path, Sequence(), data(65), epochs=2)
    exp.run(epochs=1, wait=True)
    assert (exp.step_count, exp.steps_per_epoch) == (5, 5)
    exp.run(epochs=1, wait=True)
    assert (exp.step_count, exp.total_steps) == (10, 10)
    exp.close()


@pytest.mark.parametrize("counted", [4, 5])
def test_a_schedule_may_count_the_batch_that_is_left_out_or_not(
    tmp_path: Path, counted: int
) -> None:
    exp = experiment(
        tmp_path, seeded(Norms), data(65),
        scheduler=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20 * counted),
    )  # fmt: skip
    exp.run(epochs=20, wait=True)
    assert exp._training.schedule.every == "step"
    exp.close()


def test_a_batch_of_one_that_is_not_the_last_is_a_sentence(tmp_path: Path) -> None:
    given = batches(data(48))
    for at in (0, 1):
        parts = [*given[:at], (given[0][0][:1], given[0][1][:1]), *given[at:]]
        exp = experiment(tmp_path, seeded(Norms), parts)
        with pytest.raises(DataError, match="cannot train on a batch of one sample"):
            exp.run(wait=True)
        assert exp.step_count == at
        exp.close()


def test_one_sample_alone_is_a_sentence(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(Norms), data(1))
    with pytest.raises(DataError, match="give more samples in a batch"):
        exp.run(wait=True)
    exp.close()


def test_a_last_batch_of_one_is_left_out_too_where_its_step_is_done_anew(tmp_path: Path) -> None:
    """A cell puts the model into eval mode in the middle of that very step."""

    met: list[int] = []

    class Interrupted(Norms):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) == 1 and not met:
                met.append(1)
                cell = Thread(target=self.eval)
                cell.start()
                cell.join()
            return super().forward(x)

    exp = experiment(tmp_path, seeded(Interrupted), data(65))
    exp.run(epochs=2, wait=True)
    assert (exp.status, exp.step_count) == ("finished", 8)
    exp.close()


def test_a_last_batch_of_one_is_trained_on_where_nothing_refuses_it(tmp_path: Path) -> None:
    """Batch norm that is kept in eval mode takes it."""
    expected, model = seeded(Norms), seeded(Norms)
    for one in (expected, model):
        one.features.eval()

    class Frozen(torch.optim.SGD):
        """A plain loop's author has to put it back into eval mode; the experiment keeps it."""

    optimizer = Frozen(expected.parameters(), lr=0.1)
    right: list[float] = []
    torch.manual_seed(0)
    for x, y in batches(data(65)) * 2:
        expected.train()
        expected.features.eval()
        optimizer.zero_grad()
        loss = F.cross_entropy(expected(x), y)
        loss.backward()
        optimizer.step()
        right.append(loss.item())
    exp = experiment(tmp_path, model, data(65), optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    exp.run(epochs=2, wait=True)
    exp.close()
    assert losses(exp) == right
    assert len(right) == 10
    assert not any("left out" in note for note in exp.notes)


def test_batch_norm_and_batches_of_one_is_a_sentence(tmp_path: Path) -> None:
    model = seeded(Norms)
    before = weights(model)
    exp = experiment(tmp_path, model, batch_size=1)
    with pytest.raises(DataError, match="batch norm cannot train on a batch of one sample") as said:
        exp.run(epochs=1, wait=True)
    assert "give more samples in a batch" in str(said.value)
    assert "\n" not in str(said.value)
    assert (exp.status, exp.step_count) == ("exception", 0)
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)
    exp.batch_size = 16
    exp.resume().wait(120)
    assert (exp.status, exp.step_count) == ("finished", STEPS_PER_EPOCH)
    exp.close()


def test_another_value_error_of_a_batch_of_one_is_the_users(tmp_path: Path) -> None:
    class Refuses(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) == 1:
                raise ValueError("no batch of one, says the model")
            return super().forward(x)

    exp = experiment(tmp_path, Refuses(FEATURES, CLASSES), data(65))
    with pytest.raises(ValueError, match="no batch of one, says the model"):
        exp.run(epochs=1, wait=True)
    assert exp.step_count == 4
    exp.close()
