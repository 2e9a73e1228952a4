"""A loss of the user's own: of the whole set where that is the same loss, else of its batches."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.unit.experiment.plain_loop import plain_loop, seeded
from workbench.experiment import Experiment
from workbench.experiment.recipe.loss_scope import ROWS, compares_samples, means_columns

WIDTH, CLASSES, SIZE = 8, 3, 16


def outputs(rows: int = 24, seed: int = 1, width: int = WIDTH) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def labels(rows: int = 24) -> torch.Tensor:
    return torch.arange(rows) % CLASSES


# -- losses -----------------------------------------------------------------------------------


def info_nce(features: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
    """CLIP's: each half of the features is one view of the sample."""
    one, other = (F.normalize(view, dim=1) for view in features.chunk(2, 1))
    scores = one @ other.t() / 0.1
    right = torch.arange(len(scores))
    return (F.cross_entropy(scores, right) + F.cross_entropy(scores.t(), right)) / 2


def supervised_contrastive(features: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    found = F.normalize(features, dim=1)
    scores = found @ found.t() / 0.5
    itself = torch.eye(len(found), dtype=torch.bool)
    same = (of[:, None] == of[None]) & ~itself
    chances = scores - scores.masked_fill(itself, -torch.inf).logsumexp(1, keepdim=True)
    return -(chances * same).sum(1).div(same.sum(1).clamp(min=1)).mean()


def hardest_triplets(features: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    apart = torch.cdist(features, features)
    same = of[:, None] == of[None]
    farthest = apart.masked_fill(~same, 0).amax(1)
    nearest = apart.masked_fill(same, torch.inf).amin(1)
    return F.relu(farthest - nearest + 1).mean()


def correlation(given: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
    a, b = (column - column.mean() for column in (given[:, 0], given[:, 1]))
    return 1 - (a * b).sum() / (a.norm() * b.norm())


class NTXent(nn.Module):
    """A module without parameters, as libraries have it."""

    def forward(self, features: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        return info_nce(features, of)


def fixed(features: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """Made for one batch size."""
    return (features.reshape(24, WIDTH) * torch.ones(24, 1)).square().mean() + 0 * of.sum()


def focal(logits: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    each = F.cross_entropy(logits, of, reduction="none")
    return ((1 - (-each).exp()) ** 2 * each).mean()


def weighted(logits: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    each, weight = F.cross_entropy(logits, of, reduction="none"), 1.0 + of
    return (each * weight).sum() / weight.sum()


def root(logits: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
    return logits.square().mean().sqrt()


def summed(logits: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, of, reduction="sum")


IN_BATCH: list[Any] = [info_nce, supervised_contrastive, hardest_triplets, correlation, NTXent()]
BY_SAMPLE: list[Any] = [focal, weighted, root, summed, nn.CrossEntropyLoss()]


@pytest.mark.parametrize("loss", IN_BATCH)
def test_samples_that_act_on_each_other_are_seen(loss: Any) -> None:
    assert compares_samples(loss, outputs(), labels()) is True
    assert compares_samples(loss, outputs(100, 3), labels(100)) is True


@pytest.mark.parametrize("loss", BY_SAMPLE)
def test_means_sums_and_what_is_made_of_them_are_not(loss: Any) -> None:
    assert compares_samples(loss, outputs(), labels()) is False
    assert compares_samples(loss, outputs(100, 3), labels(100)) is False


@pytest.mark.parametrize("loss", [info_nce, focal, weighted, root])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_type_of_the_outputs_makes_no_difference(loss: Any, dtype: torch.dtype) -> None:
    found = compares_samples(loss, outputs().to(dtype), labels())
    with torch.autocast("cpu", torch.bfloat16):
        assert compares_samples(loss, outputs().to(dtype), labels()) is found
    assert found is (loss is info_nce)


def test_what_cannot_be_computed_for_a_part_is_a_loss_of_its_batch() -> None:
    assert compares_samples(fixed, outputs(), labels()) is True


@pytest.mark.parametrize(
    ("loss", "rows"),
    [
        (info_nce, 3),
        (lambda _, of: (of * torch.tensor(torch.nan)).sum(), 24),
        (lambda x, _: x.mean() * 0, 24),
        (lambda x, _: x.sum() * torch.tensor([torch.nan, 1.0])[int(len(x) > 12)], 24),
    ],
)
def test_few_rows_and_a_loss_of_nothing_say_nothing(loss: Any, rows: int) -> None:
    assert compares_samples(loss, outputs(rows), labels(rows)) is None


def test_it_is_called_three_times_on_few_rows_and_leaves_no_gradient() -> None:
    sizes: list[int] = []
    scale = nn.Parameter(torch.ones(()))

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return info_nce(x * scale, of)

    given = outputs(1000)
    assert compares_samples(loss, given, labels(1000)) is True
    assert sizes == [ROWS, ROWS // 2, ROWS // 2]
    assert scale.grad is None
    assert not given.requires_grad


def test_rows_are_from_all_over_a_set_that_is_sorted_by_class() -> None:
    """Of one class alone a mined triplet is 0, and a contrastive loss has nothing to compare."""
    given, of = outputs(300, 4), labels(300).sort().values
    for loss in (hardest_triplets, supervised_contrastive):
        assert compares_samples(loss, given, of) is True
        assert not means_columns(loss, given, of)
    assert compares_samples(focal, given, of) is False


def diverse(logits: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """A small term compares what a batch is given as a whole."""
    chances = logits.softmax(1).mean(0)
    return F.cross_entropy(logits, of) + 0.05 * (chances * chances.log()).sum()


def test_a_small_term_that_compares_samples_is_seen() -> None:
    for rows, seed in ((24, 1), (100, 3), (1000, 4)):
        given, of = outputs(rows, seed) / 4, labels(rows)
        assert compares_samples(diverse, given, of) is True
        for loss in BY_SAMPLE:
            assert compares_samples(loss, given, of) is False


def test_every_other_label_may_be_one_that_does_not_count() -> None:
    of = labels(64)
    of[::2] = -100
    assert compares_samples(nn.CrossEntropyLoss(), outputs(64), of) is False


def margin(logits: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """As margin losses are written: into the very logits, and into the labels."""
    of[of == 2] = 1
    logits[torch.arange(len(of)), of] -= 0.5
    return F.cross_entropy(logits, of)


def test_a_loss_may_write_into_what_it_is_given() -> None:
    given, of = outputs(), labels()
    assert compares_samples(margin, given, of) is False
    assert means_columns(margin, given, of)
    assert torch.equal(given, outputs())
    assert torch.equal(of, labels())


def test_without_a_gradient_values_say_it() -> None:
    assert compares_samples(lambda x, of: focal(x.detach(), of), outputs(), labels()) is False
    assert compares_samples(lambda x, of: summed(x.detach(), of), outputs(), labels()) is False
    assert compares_samples(lambda x, of: info_nce(x.detach(), of), outputs(), labels()) is True


def test_features_have_no_column_of_their_own() -> None:
    for loss in (supervised_contrastive, hardest_triplets):
        assert not means_columns(loss, outputs(), labels())
    for loss in (focal, weighted, nn.CrossEntropyLoss()):
        assert means_columns(loss, outputs(), labels())


# -- validation -------------------------------------------------------------------------------


def linear() -> nn.Module:
    return nn.Linear(6, WIDTH)


def samples(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return outputs(count, seed, width=6), labels(count)


def trained(
    tmp_path: Path, loss: Any, val: Any, model: nn.Module | None = None, **options: Any
) -> Experiment:
    exp = Experiment(
        model or seeded(linear), samples(64, 1), val, loss=loss, runs=tmp_path, device="cpu",
        **{"batch_size": SIZE, **options},
    )  # fmt: skip
    exp.run(epochs=2, wait=True)
    exp.close()
    return exp


def validated(exp: Experiment) -> float:
    return float(exp.scalars.history()["val/loss"]["value"][-1])


def by_batches(exp: Experiment, loss: Any, val: Any, size: int = SIZE) -> float:
    with torch.no_grad():
        each = [
            (float(loss(exp.model.eval()(x), of)), len(x))
            for x, of in zip(*(part.split(size) for part in val), strict=True)
        ]
    return sum(value * count for value, count in each) / sum(count for _, count in each)


@pytest.mark.parametrize("loss", IN_BATCH)
def test_an_in_batch_loss_is_validated_by_batches_and_it_is_said(tmp_path: Path, loss: Any) -> None:
    val = samples(50, 2)
    exp = trained(tmp_path, loss, val)
    assert validated(exp) == pytest.approx(by_batches(exp, loss, val), rel=1e-5)
    (note,) = (one for one in exp.notes if one.startswith("val/loss"))
    assert "over batches of 16, weighted by samples" in note
    assert "an in-batch loss, or terms that are averaged over different things" in note


def test_a_whole_set_at_once_would_have_been_another_loss(tmp_path: Path) -> None:
    """Twice as many samples, copies of the first: the mean over batches stays as it is."""
    x, of = samples(48, 2)
    once = trained(tmp_path, info_nce, (x, of))
    twice = trained(tmp_path, info_nce, (x.repeat(2, 1), of.repeat(2)))
    assert validated(once) == pytest.approx(validated(twice), rel=1e-5)


def test_features_have_no_accuracy_once_it_is_known(tmp_path: Path) -> None:
    exp = trained(tmp_path, supervised_contrastive, samples(50, 2))
    assert "val/accuracy" not in exp.scalars.history()
    assert exp.best_accuracy is None
    (note,) = (one for one in exp.notes if one.startswith("val/loss"))
    assert note.endswith(", and there is no accuracy")


def test_more_classes_than_columns_are_no_scores_of_them(tmp_path: Path) -> None:
    x, _ = samples(64, 1)
    of = torch.arange(64) % (WIDTH + 1)
    exp = Experiment(
        seeded(linear), (x, of), loss=supervised_contrastive, runs=tmp_path, device="cpu"
    )
    exp.run(wait=True)
    assert "train/accuracy" not in exp.scalars.history()
    exp.close()


def test_scores_of_classes_keep_their_accuracy(tmp_path: Path) -> None:
    def dice(logits: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        chances, wanted = logits.softmax(1), F.one_hot(of, WIDTH)
        both = (chances * wanted).sum(0)
        return 1 - (2 * both / (chances + wanted).sum(0).clamp(min=1)).mean()

    val = samples(50, 2)
    exp = trained(tmp_path, dice, val)
    assert validated(exp) == pytest.approx(by_batches(exp, dice, val), rel=1e-5)
    with torch.no_grad():
        right = (exp.model.eval()(val[0]).argmax(1) == val[1]).double().mean()
    assert exp.scalars.last("val/accuracy")[0] == pytest.approx(float(right))


@pytest.mark.parametrize("loss", [focal, weighted, summed, root])
def test_other_losses_are_of_the_whole_set(tmp_path: Path, loss: Any) -> None:
    x, of = samples(50, 2)
    exp = trained(tmp_path, loss, (x, of))
    with torch.no_grad():
        expected = float(loss(exp.model.eval()(x), of))
    assert validated(exp) == pytest.approx(expected, rel=1e-5)
    assert not any(note.startswith("val/loss") for note in exp.notes)


@pytest.mark.parametrize(("inner", "extra"), [(info_nce, 3 + 2), (focal, 3)])
def test_it_is_found_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: Any, extra: int
) -> None:
    """Beside the batches: three calls in the first validation; a whole set is one in each.

    Two more say whether columns that look like scores of classes are.
    """
    calls = [0]
    ravel = torch.ravel

    def counting(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return ravel(x)

    # a function of torch's is trusted; a counter that the loss can see is something it keeps
    monkeypatch.setattr(torch, "ravel", counting)

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        return inner(x, torch.ravel(of))

    trained(tmp_path, loss, samples(48, 2))
    whole = 0 if inner is info_nce else 2
    assert calls[0] == 2 * (4 + 3) + extra + whole


@pytest.mark.parametrize("seen_first", [False, True])
def test_a_set_sorted_by_class_is_validated_by_batches(tmp_path: Path, seen_first: bool) -> None:
    """As `ImageFolder` has it; a look at another set beforehand makes no difference."""
    x, of = samples(240, 4)
    order = of.argsort(stable=True)
    val = x[order], of[order]
    model = seeded(linear)
    exp = Experiment(
        model, samples(64, 1), val, loss=hardest_triplets, runs=tmp_path, device="cpu",
        batch_size=SIZE,
    )  # fmt: skip
    if seen_first:
        exp.evaluate((x, of))
    exp.run(epochs=2, wait=True)
    exp.close()
    assert validated(exp) == pytest.approx(by_batches(exp, hardest_triplets, val), rel=1e-5)
    assert "val/accuracy" not in exp.scalars.history()
    assert any("an in-batch loss" in note for note in exp.notes)


def zero_at_first() -> tuple[Callable[..., torch.Tensor], list[float]]:
    """Gives nothing, and so shows nothing, until a cell sets its margin."""
    margin_of = [-1e6]

    def loss(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        apart = torch.cdist(x, x)
        same = of[:, None] == of[None]
        farthest = apart.masked_fill(~same, 0).amax(1)
        nearest = apart.masked_fill(same, torch.inf).amin(1)
        return F.relu(farthest - nearest + margin_of[0]).mean()

    return loss, margin_of


def test_what_cannot_be_determined_is_the_mean_of_batches_and_stays_it(tmp_path: Path) -> None:
    loss, margin_of = zero_at_first()
    val = samples(48, 2)
    exp = Experiment(
        seeded(linear), samples(64, 1), val, loss=loss, runs=tmp_path, device="cpu",
        batch_size=SIZE,
    )  # fmt: skip
    exp.run(epochs=1, wait=True)
    assert any("whether it compares samples with each other cannot be seen" in n for n in exp.notes)
    assert "val/accuracy" not in exp.scalars.history()
    margin_of[0] = 1.0
    exp.run(epochs=2, wait=True)
    exp.close()
    assert validated(exp) == pytest.approx(by_batches(exp, loss, val), rel=1e-5)
    assert "val/accuracy" not in exp.scalars.history()
    assert not exp._training.loss.answers.reads, "features, as has become known"


def test_one_batch_is_the_whole_set(tmp_path: Path) -> None:
    """Nothing is to be said of a mean of one; and few rows of scores have an accuracy."""
    for count in (1, 3, SIZE):
        val = samples(count, 2)
        exp = trained(tmp_path, focal, val)
        assert validated(exp) == pytest.approx(by_batches(exp, focal, val, count), rel=1e-5)
        assert exp.scalars.last("val/accuracy")
        assert not any(note.startswith("val/loss") for note in exp.notes)


def test_a_loss_of_one_number_in_a_list_is_one_number(tmp_path: Path) -> None:
    def listed(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        return focal(x, of).reshape(1)

    val = samples(50, 2)
    exp = trained(tmp_path, listed, val)
    with torch.no_grad():
        expected = float(focal(exp.model.eval()(val[0]), val[1]))
    assert validated(exp) == pytest.approx(expected, rel=1e-5)


class OutOfPlace(nn.Module):
    """A linear layer whose outputs a loss may write into."""

    def __init__(self) -> None:
        super().__init__()
        self.head = linear()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x) * 1.0


def test_accuracy_is_that_of_the_outputs_before_a_loss_writes_into_them(tmp_path: Path) -> None:
    """Losses are those of a loop, in which it writes into them too."""
    train, val = samples(64, 1), samples(50, 2)
    judge = seeded(OutOfPlace)
    right: list[float] = []

    def counting(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        right.append(float((x.argmax(1) == of).sum()))
        return margin(x, of)

    parts = list(zip(*(part.clone().split(SIZE) for part in train), strict=True))
    expected = plain_loop(
        judge, parts, torch.optim.SGD(judge.parameters(), lr=0.1), epochs=1, loss_of=counting
    )
    exp = Experiment(
        seeded(OutOfPlace), train, val, loss=margin, batch_size=SIZE, shuffle=False, runs=tmp_path,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1), device="cpu",
    )  # fmt: skip
    exp.run(wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == expected
    assert exp.scalars.last("train/accuracy")[0] == pytest.approx(sum(right) / 64)
    with torch.no_grad():
        given = exp.model.eval()(val[0])
        accuracy = float((given.argmax(1) == val[1]).double().mean())
        whole = float(margin(given, val[1].clone()))
    assert exp.scalars.last("val/accuracy")[0] == pytest.approx(accuracy)
    assert validated(exp) == pytest.approx(whole, rel=1e-5)
    assert exp.notes == []


def two_terms(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    weight = torch.tensor([0.1, 1.0, 5.0] + [1.0] * (WIDTH - 3))
    return F.cross_entropy(x, of, weight=weight) + 0.1 * x.square().mean()


def test_of_two_terms_it_is_not_said_that_they_compare_samples(tmp_path: Path) -> None:
    x, _ = samples(50, 2)
    val = x, (x[:, 0] > 0).long() + (x[:, 1] > 1)
    exp = trained(tmp_path, two_terms, val)
    assert validated(exp) == pytest.approx(by_batches(exp, two_terms, val), rel=1e-5)
    (note,) = (one for one in exp.notes if one.startswith("val/loss"))
    assert "compares the samples" not in note
    assert "or terms that are averaged over different things" in note
    assert exp.scalars.last("val/accuracy")


class Draws(nn.Module):
    """Draws in every call, from all three sources of random numbers."""

    def forward(self, x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(()) + random.random() + np.random.rand()
        return focal(x, of) * (1 + 0.01 * noise)


def test_the_inspection_moves_no_random_numbers_in_the_loaders_order(tmp_path: Path) -> None:
    random.seed(0)
    np.random.seed(0)
    train, val = samples(64, 1), samples(48, 2)
    judge, loss = seeded(linear), Draws()

    def loaders() -> tuple[Any, Any]:
        return (
            DataLoader(TensorDataset(*train), SIZE, shuffle=True),
            DataLoader(TensorDataset(*val), SIZE),
        )

    by_hand, to_validate = loaders()

    def validate() -> None:
        with torch.no_grad():
            for x, of in to_validate:
                loss(judge(x), of)

    expected = plain_loop(
        judge, by_hand, torch.optim.SGD(judge.parameters(), lr=0.01), epochs=2, loss_of=loss,
        after_epoch=validate,
    )  # fmt: skip
    random.seed(0)
    np.random.seed(0)
    given, val_loader = loaders()
    exp = Experiment(
        seeded(linear), given, val_loader, loss=Draws(), order="loader", runs=tmp_path,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.01), device="cpu",
    )  # fmt: skip
    exp.run(epochs=2, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == expected
    (note,) = (one for one in exp.notes if one.startswith("val/loss"))
    assert "it draws random numbers" in note
