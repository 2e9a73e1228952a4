"""Accuracy of training: of every sample of the epoch, each as the weights of its step had it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from tests.unit.experiment.plain_loop import (
    CLASSES,
    FEATURES,
    Pair,
    batches,
    data,
    linear,
    plain_loop,
    seeded,
)
from workbench.experiment import Experiment, RunError
from workbench.experiment.loop import epoch_accuracy, measures
from workbench.experiment.loop.measures import ALL_UNTIL, EVERY, is_sampled, on_sample
from workbench.modes import ModeSet

COUNT, SIZE = 50, 16
"""The last batch of an epoch has two samples."""
PER_EPOCH = 4
Counted = tuple[int, int]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def largest(logits: torch.Tensor, labels: torch.Tensor) -> Counted:
    """Rows whose largest score is that of their label, one after the other."""
    wanted = labels.argmax(1) if labels.is_floating_point() else labels
    pairs = [
        (row, int(one)) for row, one in zip(logits.tolist(), wanted, strict=True) if one != -100
    ]
    return sum(row.index(max(row)) == one for row, one in pairs), len(pairs)


def yes(logits: torch.Tensor, labels: torch.Tensor) -> Counted:
    pairs = list(zip(logits.flatten().tolist(), labels.flatten().tolist(), strict=True))
    return sum((logit > 0) == (label > 0.5) for logit, label in pairs), len(pairs)


def by_hand(
    model: nn.Module,
    loader: Iterable[Any],
    epochs: int,
    loss_of: Callable[..., torch.Tensor] = F.cross_entropy,
    count: Callable[..., Counted] = largest,
) -> list[list[float]]:
    """Share of right answers in the epoch so far after each step of a plain loop, by epoch."""
    found: list[list[float]] = []
    sums: list[Counted] = []

    def noted(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        sums.append(count(logits.detach(), labels))
        return loss_of(logits, labels)

    def ended() -> None:
        rights = [sum(right for right, _ in sums[: at + 1]) for at in range(len(sums))]
        counts = [sum(many for _, many in sums[: at + 1]) for at in range(len(sums))]
        found.append([a / b if b else -1 for a, b in zip(rights, counts, strict=True)])
        sums.clear()

    plain_loop(model, loader, sgd(model), epochs=epochs, loss_of=noted, after_epoch=ended)
    return found


def experiment(folder: Path, model: nn.Module, train: Any, **options: Any) -> Experiment:
    settings = {"batch_size": SIZE, "shuffle": False, "device": "cpu", "optimizer": sgd(model)}
    return Experiment(model, train, runs=folder, **(settings | options))


def accuracies(exp: Experiment) -> tuple[list[int], list[float]]:
    series = exp.scalars.history()["train/accuracy"]
    return series["step"].tolist(), series["value"].tolist()


def flat(parts: list[list[float]]) -> list[float]:
    return [one for part in parts for one in part]


def test_every_point_is_the_share_of_the_epoch_so_far(tmp_path: Path) -> None:
    expected = by_hand(seeded(linear), batches(data(COUNT), SIZE), epochs=3)
    exp = experiment(tmp_path, seeded(linear), data(COUNT))
    exp.run(epochs=3, wait=True)
    assert accuracies(exp) == (list(range(1, 3 * PER_EPOCH + 1)), flat(expected))
    exp.close()


def test_later_points_are_sampled_by_the_number_of_the_step(tmp_path: Path) -> None:
    """With the last step of every epoch; two equal runs log equal points."""
    size = 4
    steps, epochs = -(-COUNT // size), 12
    expected = flat(by_hand(seeded(linear), batches(data(COUNT), size), epochs))
    wanted = [
        step
        for step in range(1, steps * epochs + 1)
        if step <= ALL_UNTIL or step % EVERY == 0 or step % steps == 0
    ]
    assert len(wanted) < steps * epochs
    found = []
    for pauses in (False, True):
        exp = experiment(tmp_path, seeded(linear), data(COUNT), batch_size=size)
        for _ in range(epochs if pauses else 1):
            exp.run(epochs=1 if pauses else epochs, wait=True)
        found.append(accuracies(exp))
        exp.close()
    assert found[0] == found[1] == (wanted, [expected[step - 1] for step in wanted])


def test_which_steps_are_sampled() -> None:
    assert all(is_sampled(step) for step in range(1, ALL_UNTIL + 1))
    later = [step for step in range(ALL_UNTIL + 1, ALL_UNTIL + 51) if is_sampled(step)]
    assert later == [110, 120, 130, 140, 150]


def test_readers_are_notified_of_sampled_steps_until_they_are_removed(tmp_path: Path) -> None:
    exp = experiment(tmp_path, seeded(linear), data(COUNT), batch_size=1)
    reported: list[int] = []
    remove = on_sample(exp, reported.append)
    exp.run(steps=ALL_UNTIL + 25, wait=True)
    assert reported == [*range(1, ALL_UNTIL + 1), 110, 120]
    remove()
    remove()
    exp.run(steps=10, wait=True)
    assert reported[-1] == 120
    exp.close()


def with_ignored(pair: Pair) -> Pair:
    """But for one label, the whole second batch too."""
    x, y = pair
    y[SIZE : 2 * SIZE - 1] = -100
    y[::4] = -100
    return x, y


def one_hot(pair: Pair) -> Pair:
    return pair[0], F.one_hot(pair[1], CLASSES).float()


def several(pair: Pair) -> Pair:
    return pair[0], (pair[0][:, :CLASSES] > 0.2).float()


def of_one_hot(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels.argmax(1))


@pytest.mark.parametrize(
    ("loss", "change", "count"),
    [
        (nn.CrossEntropyLoss(), with_ignored, largest),
        (nn.CrossEntropyLoss(), one_hot, largest),
        (of_one_hot, one_hot, largest),
        (nn.BCEWithLogitsLoss(), several, yes),
        (lambda a, b: 2 * F.cross_entropy(a, b), lambda pair: pair, largest),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_answers_by_what_the_loss_compares(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loss: Any,
    change: Callable[[Pair], Pair],
    count: Callable[..., Counted],
    at_once: bool,
) -> None:
    """Whether logits are kept for a while, or counted in their step as large ones are."""
    if at_once:
        monkeypatch.setattr(epoch_accuracy, "_MOST_NUMBERS", 0)
    pair = change(data(COUNT))
    expected = by_hand(seeded(linear), batches(pair, SIZE), 2, loss, count)
    exp = experiment(tmp_path, seeded(linear), pair, loss=loss)
    exp.run(epochs=2, wait=True)
    assert accuracies(exp)[1] == flat(expected)
    exp.close()


def test_logits_of_many_numbers_are_counted_the_same(tmp_path: Path) -> None:
    many = (1 << 16) // SIZE + 100
    x, y = data(COUNT)
    y *= many // CLASSES

    def wide() -> nn.Linear:
        layer = nn.Linear(FEATURES, many)
        with torch.no_grad():
            layer.bias[y] = 3.0
        return layer

    expected = by_hand(seeded(wide), batches((x, y), SIZE), epochs=2)
    assert 0 < expected[-1][-1] < 1
    exp = experiment(tmp_path, seeded(wide), (x, y))
    exp.run(epochs=2, wait=True)
    assert accuracies(exp)[1] == flat(expected)
    exp.close()


class Tokens(nn.Module):
    """Classes last, and sequences of a length that is, in one batch, the number of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


def of_tokens(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def tokens(logits: torch.Tensor, labels: torch.Tensor) -> Counted:
    return largest(logits.flatten(0, 1), labels.flatten())


def test_tokens_are_read_one_way_in_every_batch(tmp_path: Path) -> None:
    x, y = data(14 * 8)
    parts = [(x[:80], y[:80]), (x[80:100], y[80:100]), (x[100:], y[100:])]
    cut = [
        (a.reshape(-1, length, FEATURES), b.reshape(-1, length))
        for (a, b), length in zip(parts, (8, 5, CLASSES), strict=True)
    ]
    expected = by_hand(seeded(Tokens), cut, 3, of_tokens, tokens)
    exp = experiment(tmp_path, seeded(Tokens), cut, loss=of_tokens)
    exp.run(epochs=3, wait=True)
    assert accuracies(exp)[1] == flat(expected)
    assert sum("the last dimension of the logits" in note for note in exp.notes) == 1
    exp.close()


def test_an_epoch_that_is_interrupted_is_counted_as_a_whole(tmp_path: Path) -> None:
    expected = flat(by_hand(seeded(linear), batches(data(COUNT), SIZE), epochs=2))
    exp = experiment(tmp_path, seeded(linear), data(COUNT))
    for steps in (1, 2, 3, 2):
        exp.run(steps=steps, wait=True)
        exp.scalars.flush()
    assert accuracies(exp) == (list(range(1, 9)), expected)
    exp.close()


def test_a_batch_that_was_refused_is_no_part_of_it(tmp_path: Path) -> None:
    x, y = data(COUNT)
    x[SIZE + 1, 0] = torch.nan
    good = [one for at, one in enumerate(batches((x, y), SIZE)) if at != 1]
    expected = by_hand(seeded(linear), good, epochs=1)
    exp = experiment(tmp_path, seeded(linear), (x, y))
    with pytest.raises(RunError):
        exp.run().wait(60)
    exp.resume_from_failure().wait(60)
    assert accuracies(exp) == ([1, 2, 3], flat(expected))
    exp.close()


class Refills:
    """A loader that fills the same two tensors for every batch, as fast ones do."""

    def __init__(self, pair: Pair) -> None:
        self.batches = batches(pair, 10)
        self.x, self.y = (torch.empty_like(part) for part in self.batches[0])

    def __iter__(self) -> Iterator[Pair]:
        for x, y in self.batches:
            self.x.copy_(x)
            self.y.copy_(y)
            yield self.x, self.y


def test_a_loader_that_fills_the_same_tensors_again(tmp_path: Path) -> None:
    """In training and, under a loss that is computed of all together, in validation."""

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, labels).sqrt()

    model = seeded(linear)
    expected = by_hand(seeded(linear), Refills(data(COUNT)), 2, loss)
    exp = experiment(tmp_path, model, Refills(data(COUNT)), val=Refills(data(COUNT, 2)), loss=loss)
    exp.run(epochs=2, wait=True)
    assert accuracies(exp)[1] == flat(expected)
    x, y = data(COUNT, 2)
    with torch.no_grad():
        whole = float(loss(model(x), y))
    assert exp.scalars.history()["val/loss"]["value"][-1] == pytest.approx(whole, rel=1e-5)
    exp.close()


def test_a_collate_function_that_fills_a_buffer_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several steps are counted at once where not all are sampled."""
    monkeypatch.setattr(measures, "ALL_UNTIL", 0)
    buffer = torch.empty(10, dtype=torch.int64)

    def collated(samples: list[Pair]) -> Pair:
        buffer.copy_(torch.stack([y for _, y in samples]))
        return torch.stack([x for x, _ in samples]), buffer

    x, y = data(COUNT)
    expected = by_hand(seeded(linear), batches((x, y), 10), 2)
    loader = DataLoader(list(zip(x, y, strict=True)), 10, collate_fn=collated)
    exp = experiment(tmp_path, seeded(linear), loader)
    exp.run(epochs=2, wait=True)
    assert accuracies(exp)[1] == [epoch[-1] for epoch in expected]
    exp.close()


class Stream(IterableDataset[Any]):
    """Samples of which nobody knows how many there are."""

    def __iter__(self) -> Iterator[Pair]:
        yield from zip(*data(COUNT), strict=True)


def test_an_epoch_of_unknown_length_has_its_last_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "ALL_UNTIL", 1)
    expected = by_hand(seeded(linear), batches(data(COUNT), SIZE), epochs=3)
    exp = experiment(tmp_path, seeded(linear), DataLoader(Stream(), SIZE))
    exp.run(epochs=3, wait=True)
    steps, values = accuracies(exp)
    assert steps == [1, PER_EPOCH, 2 * PER_EPOCH, 10, 3 * PER_EPOCH]
    assert values == [flat(expected)[step - 1] for step in steps]
    exp.close()


def test_numbers_to_come_close_to_have_no_accuracy(tmp_path: Path) -> None:
    pair = data(COUNT)[0], torch.randn(COUNT, CLASSES)
    exp = experiment(tmp_path, seeded(linear), pair, loss=nn.MSELoss())
    exp.run(wait=True)
    assert "train/accuracy" not in exp.scalars.history()
    exp.close()


class Clock:
    """Time in which a step takes a hundredth of a second, and a compile a hundred seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 0.01
        return self.now


@pytest.mark.parametrize("switch_at", [20, ALL_UNTIL + EVERY])
def test_the_first_step_of_other_modes_is_not_the_throughput(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch_at: int
) -> None:
    clock = Clock()
    monkeypatch.setattr(measures, "time", clock)
    exp = experiment(tmp_path, seeded(linear), data(COUNT))
    attach = ModeSet.attach

    def slow(modes: ModeSet, model: nn.Module) -> None:
        if exp.step_count:
            clock.now += 100
        attach(modes, model)

    def switch(step: int) -> None:
        if step == switch_at:
            exp.modes = "bf16"

    monkeypatch.setattr(ModeSet, "attach", slow)
    on_sample(exp, switch)
    exp.run(steps=switch_at + EVERY, wait=True)
    assert clock.now > 100
    figures = exp.scalars.history()["train/samples_per_s"]["value"]
    assert min(figures) > SIZE / 0.01 / 10
    exp.close()
