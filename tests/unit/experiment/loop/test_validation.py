"""Validation: numbers a person could compute by hand, and no trace in the training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.unit.experiment.plain_loop import plain_loop, seeded
from workbench.experiment import Experiment, RunError
from workbench.experiment.loop.validation import Tally, evaluate
from workbench.experiment.recipe import whole_set_loss
from workbench.experiment.report.events import EpochDone, Event


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
        exp.run(epochs=2).wait(120)
    assert exp.failure is not None
    assert exp.failure.subtitle.startswith("It was raised while validating.")
    assert model.training, "it was left in eval mode"
    model.fail = False
    exp.resume().wait(120)
    assert exp.step_count == 8
    assert exp.scalars.since("val/loss", 0)[0].tolist() == [4, 8]
    exp.close()


def test_a_model_given_in_eval_mode_is_trained_and_it_is_said(tmp_path: Path) -> None:
    exp = Experiment(nn.Sequential(nn.Linear(4, 3)).eval(), data(8), runs=tmp_path, device="cpu")
    exp.run(wait=True)
    assert exp.model.training
    assert any("eval mode" in note for note in exp.notes)
    exp.close()


# -- the loss of the whole set ----------------------------------------------------------------

CLASSES, COUNT, SIZE = 3, 50, 16
"""The last batch has two samples."""
WEIGHTS = torch.tensor([0.1, 1.0, 5.0])


class Net(nn.Module):
    """Batch norm and dropout, so that eval mode has another loss than train mode."""

    def __init__(self, end: nn.Module | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.head = nn.Linear(8, CLASSES)
        self.end = end or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.head(self.body(x)))


def classes(x: torch.Tensor) -> torch.Tensor:
    """Labels that a model can learn, and far from equally many of each."""
    return (x[:, 0] > 0).long() + (x[:, 1] > 1).long()


def with_ignored(x: torch.Tensor) -> torch.Tensor:
    """Of the second batch, every label is ignored."""
    labels = classes(x)
    labels[SIZE : 2 * SIZE] = -100
    labels[3::7] = -100
    return labels


def soft(x: torch.Tensor) -> torch.Tensor:
    return x[:, :CLASSES].softmax(1)


def several(x: torch.Tensor) -> torch.Tensor:
    return (x[:, :CLASSES] > 0.3).float()


def numbers(x: torch.Tensor) -> torch.Tensor:
    return x[:, :CLASSES] * 2


def weighted(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A mean by weights of one's own, which no loop could know of."""
    each = F.cross_entropy(logits, labels, reduction="none")
    return (each * WEIGHTS[labels]).sum() / WEIGHTS[labels].sum()


class Squared(nn.CrossEntropyLoss):
    """A class of torch's with another mean."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return F.cross_entropy(input, target, reduction="none").square().mean().sqrt()


@dataclass
class Case:
    loss: Callable[[], Any]
    labels: Callable[[torch.Tensor], torch.Tensor] = classes
    end: Callable[[], nn.Module] | None = None
    notes: int = 0
    """Sentences that are said of it."""


LOSSES: dict[str, Case] = {
    "none given": Case(lambda: F.cross_entropy),
    "class weights": Case(lambda: nn.CrossEntropyLoss(WEIGHTS)),
    "ignored": Case(nn.CrossEntropyLoss, with_ignored),
    "ignored and weights": Case(lambda: nn.CrossEntropyLoss(WEIGHTS), with_ignored),
    "smoothing and weights": Case(lambda: nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.1)),
    "sum": Case(lambda: nn.CrossEntropyLoss(WEIGHTS, reduction="sum"), with_ignored),
    "soft": Case(nn.CrossEntropyLoss, soft),
    "soft and weights": Case(lambda: nn.CrossEntropyLoss(WEIGHTS), soft),
    "partial": Case(
        lambda: functools.partial(F.cross_entropy, weight=WEIGHTS, label_smoothing=0.2)
    ),
    "negative log likelihood": Case(lambda: nn.NLLLoss(WEIGHTS), end=lambda: nn.LogSoftmax(1)),
    "labels": Case(lambda: nn.BCEWithLogitsLoss(pos_weight=WEIGHTS), several, notes=1),
    "probabilities": Case(nn.BCELoss, several, nn.Sigmoid, notes=1),
    "mean squares": Case(nn.MSELoss, numbers),
    "kl, batchmean": Case(
        lambda: nn.KLDivLoss(reduction="batchmean"), soft, lambda: nn.LogSoftmax(1)
    ),
    "smooth": Case(nn.SmoothL1Loss, numbers),
    "multi margin": Case(lambda: nn.MultiMarginLoss(weight=WEIGHTS)),
    "of one's own": Case(lambda: lambda a, b: 2 * weighted(a, b)),
    "of one's own, summed": Case(lambda: lambda a, b: F.cross_entropy(a, b, reduction="sum")),
    "a subclass": Case(Squared),
    "a subclass that says sum": Case(lambda: Squared(reduction="sum")),
    "a root": Case(lambda: lambda a, b: F.mse_loss(a, b).sqrt(), numbers),
}


def samples(labels: Callable[[torch.Tensor], torch.Tensor], seed: int, count: int = COUNT) -> Any:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return x, labels(x)


def as_arrays(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x, y


def as_loader(x: torch.Tensor, y: torch.Tensor) -> Any:
    return DataLoader(TensorDataset(x, y), SIZE)


def as_batches(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Of four lengths."""
    sizes = [SIZE, SIZE, 11, 7]
    return list(zip(x.split(sizes), y.split(sizes), strict=True))


def validated(exp: Experiment) -> float:
    return float(exp.scalars.history()["val/loss"]["value"][-1])


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *((name, as_arrays) for name in LOSSES),
        *((name, as_loader) for name in ("class weights", "of one's own")),
        *((name, as_batches) for name in ("ignored and weights", "labels", "sum", "a subclass")),
    ],
)
def test_the_loss_is_that_of_the_whole_set_at_once(
    tmp_path: Path, name: str, given: Callable[..., Any]
) -> None:
    """Torch's own, in eval mode, of all samples in one call."""
    case = LOSSES[name]
    val = samples(case.labels, seed=2)
    model = Net(case.end() if case.end else None)
    exp = Experiment(
        model, samples(case.labels, 1), given(*val), batch_size=SIZE, runs=tmp_path, device="cpu",
        loss=None if name == "none given" else case.loss(),
    )  # fmt: skip
    exp.run(wait=True)
    model.eval()
    with torch.no_grad():
        expected = float(case.loss()(model(val[0]), val[1]))
    assert validated(exp) == pytest.approx(expected, rel=1e-5)
    assert len(exp.notes) == case.notes, exp.notes
    exp.close()


@pytest.mark.parametrize("name", ["ignored and weights", "sum", "of one's own", "mean squares"])
def test_how_it_is_cut_into_batches_makes_no_difference(tmp_path: Path, name: str) -> None:
    case = LOSSES[name]
    train, val = samples(case.labels, 1), samples(case.labels, seed=2)
    found: set[float] = set()
    for size in (1, 7, COUNT):
        exp = Experiment(
            seeded(Net), train, DataLoader(TensorDataset(*val), size), batch_size=SIZE,
            loss=case.loss(), runs=tmp_path, device="cpu",
        )  # fmt: skip
        exp.run(wait=True)
        found.add(validated(exp))
        exp.close()
    assert max(found) == pytest.approx(min(found), rel=1e-5)


@pytest.mark.parametrize("width", [1, 2])
def test_one_logit_for_each_label_weighs_a_short_batch_by_its_samples(
    tmp_path: Path, width: int
) -> None:
    """Labels ``[batch]`` go into the outputs' shape, ``[batch, 1]``, in the loss that is chosen."""
    model = nn.Linear(4, 1) if width == 1 else nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    x, _ = samples(classes, seed=2)
    exp = Experiment(
        model, samples(lambda x: (x[:, 0] > 0).float(), 1), (x, (x[:, 0] > 0).float()),
        batch_size=SIZE, runs=tmp_path, device="cpu",
    )  # fmt: skip
    exp.run(wait=True)
    with torch.no_grad():
        outputs = model(x).flatten()
    expected = F.binary_cross_entropy_with_logits(outputs, (x[:, 0] > 0).float())
    assert validated(exp) == pytest.approx(float(expected), rel=1e-5)
    exp.close()


def test_outputs_that_are_compared_with_every_label_are_reported(tmp_path: Path) -> None:
    """Torch warns and trains; so does an experiment, and says what to do."""

    def sum_of(x: torch.Tensor) -> torch.Tensor:
        return x.sum(1)

    exp = Experiment(
        nn.Linear(4, 1), samples(sum_of, 1), loss=nn.MSELoss(), batch_size=SIZE, runs=tmp_path,
        device="cpu",
    )  # fmt: skip
    exp.run(wait=True)
    (note,) = (one for one in exp.notes if "compares each output with every label" in one)
    assert "MSELoss compares each output with every label, [16, 16]" in note
    assert "labels[:, None]" in note
    exp.close()


class Wraps(nn.Module):
    """A loss of one's own around one of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.CrossEntropyLoss(ignore_index=7)

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return 2 * self.inner(logits, labels)


def by_name() -> Callable[..., torch.Tensor]:
    criterion = nn.CrossEntropyLoss(ignore_index=7)
    return lambda logits, labels: criterion(logits.flatten(0, 0), labels)


@pytest.mark.parametrize("made", [Wraps, by_name])
def test_labels_that_the_called_loss_ignores_count_nowhere(
    tmp_path: Path, made: Callable[[], Any]
) -> None:
    def labels(x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(len(x)) % 3 == 0, 7, classes(x))

    model, val = Net(), samples(labels, seed=2)
    exp = Experiment(
        model, samples(labels, 1), val, loss=made(), batch_size=SIZE, runs=tmp_path, device="cpu"
    )
    exp.run(wait=True)
    with torch.no_grad():
        right = (model.eval()(val[0]).argmax(1) == val[1])[val[1] != 7].double().mean()
    assert exp.scalars.last("val/accuracy")[0] == pytest.approx(float(right))
    exp.close()


def test_outputs_with_their_sequence_first_are_the_losss_business(tmp_path: Path) -> None:
    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x).expand(5, -1, -1)

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.mean(0), labels)

    model, (x, y) = Sequence(), samples(classes, seed=2)
    exp = Experiment(
        model, samples(classes, 1), (x, y), loss=loss, batch_size=SIZE, runs=tmp_path, device="cpu"
    )
    exp.run(wait=True)
    with torch.no_grad():
        expected = float(loss(model(x), y))  # a mean by samples is that of the whole set
    assert validated(exp) == pytest.approx(expected, rel=1e-5)
    assert any("no tensors with one row for each sample" in note for note in exp.notes)
    exp.close()


def test_a_set_of_ignored_labels_alone_has_no_loss(tmp_path: Path) -> None:
    x, y = samples(classes, seed=2)
    exp = Experiment(
        Net(), samples(classes, 1), (x, torch.full_like(y, -100)), batch_size=SIZE, runs=tmp_path,
        device="cpu",
    )  # fmt: skip
    exp.run(wait=True)
    assert validated(exp) != validated(exp), "as torch says: nan"
    assert exp.best_accuracy is None
    exp.close()


class Tokens(nn.Module):
    """Logits of every token, classes last."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


def of_tokens(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def token_batches(lengths: dict[int, int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches by their length, with so many samples each."""
    generator = torch.Generator().manual_seed(5)
    made = [torch.randn(n, length, 4, generator=generator) for length, n in lengths.items()]
    return [(x, classes(x.flatten(0, 1)).reshape(x.shape[:2])) for x in made]


def test_batches_of_different_shapes_are_averaged_by_samples_and_it_is_said(
    tmp_path: Path,
) -> None:
    model, val = Tokens(), token_batches({5: 8, 7: 3, CLASSES: 1})
    exp = Experiment(model, val[:1], val, loss=of_tokens, runs=tmp_path, device="cpu")
    exp.run(wait=True)
    with torch.no_grad():
        each = [float(of_tokens(model(x), y)) * len(x) for x, y in val]
        right = sum(int((model(x).argmax(-1) == y).sum()) for x, y in val)
    assert validated(exp) == pytest.approx(sum(each) / 12, rel=1e-5)
    assert exp.best_accuracy == right / sum(y.numel() for _, y in val)
    (note,) = (one for one in exp.notes if one.startswith("val/loss"))
    assert note.startswith(
        "val/loss is the mean of of_tokens over batches of 8, weighted by samples"
    )
    assert "cannot be taken together" in note
    exp.close()


def test_known_losses_of_batches_of_different_shapes_are_the_whole_sets(tmp_path: Path) -> None:
    """Every token counts as much as any other, and nothing need be kept."""

    class Second(Tokens):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x).mT

    model, val = Second(), token_batches({5: 8, 7: 3, CLASSES: 1})
    exp = Experiment(model, val[:1], val, runs=tmp_path, device="cpu")
    exp.run(wait=True)
    with torch.no_grad():
        logits = torch.cat([model(x).mT.flatten(0, 1) for x, _ in val])
        labels = torch.cat([y.flatten() for _, y in val])
        expected = float(F.cross_entropy(logits, labels))
    assert validated(exp) == pytest.approx(expected, rel=1e-5)
    assert exp.best_accuracy == float((logits.argmax(1) == labels).double().mean())
    assert not any(note.startswith("val/loss") for note in exp.notes)
    exp.close()


def test_what_is_too_large_to_be_kept_is_averaged_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_set_loss, "MOST_BYTES", 500)
    model, val = Net(), samples(classes, seed=2)
    exp = Experiment(
        model, samples(classes, 1), val, loss=weighted, batch_size=SIZE, runs=tmp_path,
        device="cpu",
    )  # fmt: skip
    exp.run(wait=True)
    model.eval()
    parts = list(zip(*(part.split(SIZE) for part in val), strict=True))
    with torch.no_grad():
        each = [float(weighted(model(x), y)) * len(x) for x, y in parts]
    assert validated(exp) == pytest.approx(sum(each) / COUNT, rel=1e-5)
    assert any("outputs and labels take more than 0 MiB" in note for note in exp.notes)
    exp.close()


def test_labels_that_are_no_tensor_are_averaged_by_samples(tmp_path: Path) -> None:
    def loss(logits: torch.Tensor, labels: dict[str, torch.Tensor]) -> torch.Tensor:
        return weighted(logits, labels["of"])

    def as_samples(x: torch.Tensor, y: torch.Tensor) -> list[Any]:
        return [(one, {"of": label}) for one, label in zip(x, y, strict=True)]

    train, val = samples(classes, 1), samples(classes, seed=2)
    cut = list(zip(*(part.split(SIZE) for part in val), strict=True))
    model = Net()
    exp = Experiment(
        model, as_samples(*train), as_samples(*val), loss=loss, batch_size=SIZE, runs=tmp_path,
        device="cpu",
    )  # fmt: skip
    exp.run(wait=True)
    model.eval()
    with torch.no_grad():
        each = [float(weighted(model(a), b)) * len(a) for a, b in cut]
    assert validated(exp) == pytest.approx(sum(each) / COUNT, rel=1e-5)
    exp.close()


class Lists:
    """Batches of one's own."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return iter(self.batches)


def ctc(logits: torch.Tensor, targets: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    labels, lengths = targets
    steps = torch.full((len(logits),), logits.shape[1])
    return F.ctc_loss(logits.log_softmax(-1).transpose(0, 1), labels, steps, lengths)


def of_lists(logits: torch.Tensor, targets: list[torch.Tensor]) -> torch.Tensor:
    each = [
        F.cross_entropy(logits[at : at + 1].expand(len(of), -1), of)
        for at, of in enumerate(targets)
    ]
    return torch.stack(each).mean()


@pytest.mark.parametrize("how", ["concatenated", "lists"])
def test_a_batch_weighs_its_samples_and_not_its_labels(tmp_path: Path, how: str) -> None:
    generator = torch.Generator().manual_seed(2)
    batches: list[Any] = []
    for count, length in ((8, 1), (8, 3), (4, 1)):
        if how == "lists":
            x = torch.randn(count, 4, generator=generator)
            first = torch.zeros(9 * length, dtype=torch.int64)
            batches.append((x, [first, *classes(x).split(1)[1:]]))
        else:
            x = torch.randn(count, 10, 4, generator=generator)
            labels = torch.randint(1, CLASSES, (count * length,), generator=generator)
            batches.append((x, (labels, torch.full((count,), length))))
    loss = of_lists if how == "lists" else ctc
    model = Tokens()
    exp = Experiment(model, Lists(batches), Lists(batches), loss=loss, runs=tmp_path, device="cpu")
    exp.run(wait=True)
    with torch.no_grad():
        each = [float(loss(model(x), targets)) * len(x) for x, targets in batches]
    assert validated(exp) == pytest.approx(sum(each) / 20, rel=1e-5)
    assert any("weighted by samples" in note for note in exp.notes)
    exp.close()


def test_weights_of_classes_that_a_cell_exchanges_count_from_then_on(tmp_path: Path) -> None:
    loss, model, val = nn.CrossEntropyLoss(), Net(), samples(classes, seed=2)
    exp = Experiment(
        model, samples(classes, 1), val, loss=loss, batch_size=SIZE, runs=tmp_path, device="cpu"
    )
    exp.run(wait=True)
    loss.weight = WEIGHTS
    exp.run(wait=True)
    model.eval()
    with torch.no_grad():
        expected = float(F.cross_entropy(model(val[0]), val[1], weight=WEIGHTS))
    assert validated(exp) == pytest.approx(expected, rel=1e-5)
    exp.close()


class Counts(nn.Module):
    """A loss that keeps something of every batch it is called with, and goes by it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("mean", torch.zeros(CLASSES))

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * logits.detach().mean(0)
        return F.cross_entropy(logits - self.mean, labels) * (1 + 0.1 * self.calls)


def test_computing_the_whole_set_leaves_no_trace_in_a_loss(tmp_path: Path) -> None:
    """A loop calls the loss once for every batch of validation, and so it is here."""
    train, val = samples(classes, 1, 48), samples(classes, 2, 32)
    train_batches = list(zip(*(part.split(SIZE) for part in train), strict=True))
    judge, by_hand = seeded(lambda: nn.Linear(4, CLASSES)), Counts()

    def validate() -> None:
        with torch.no_grad():
            for x, y in zip(*(part.split(SIZE) for part in val), strict=True):
                by_hand(judge(x), y)

    expected = plain_loop(
        judge, train_batches, torch.optim.SGD(judge.parameters(), lr=0.1), epochs=3,
        loss_of=by_hand, after_epoch=validate,
    )  # fmt: skip
    model, loss = seeded(lambda: nn.Linear(4, CLASSES)), Counts()
    exp = Experiment(
        model, train, val, loss=loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        batch_size=SIZE, shuffle=False, runs=tmp_path, device="cpu",
    )  # fmt: skip
    exp.run(epochs=3, wait=True)
    assert exp.scalars.history()["train/loss"]["value"].tolist() == expected
    assert loss.calls == by_hand.calls
    exp.close()


@pytest.mark.parametrize("name", LOSSES)
def test_the_tally_of_one_process_is_the_same_pooled(tmp_path: Path, name: str) -> None:
    case = LOSSES[name]
    val = samples(case.labels, seed=2)
    exp = Experiment(
        Net(case.end() if case.end else None), val, loss=case.loss(), runs=tmp_path, device="cpu"
    )
    exp.model.eval()
    found = []
    for pooled, keeps in ((False, True), (True, True), (False, False), (True, False)):
        tally = Tally(exp._training)
        with torch.no_grad():
            for batch in as_batches(*val):
                evaluate(exp._training, batch, tally)
            if not keeps:
                tally._whole._not_kept = "not kept"
            if pooled:
                tally.pool(lambda tensor: tensor, lambda number: number, lambda own: [own])
            found.append(tally.result())
    assert found[0].loss == found[1].loss
    assert found[2].loss == found[3].loss
    assert found[0].accuracy == found[1].accuracy
    assert tally.num_samples == COUNT
    exp.close()


def test_a_pool_of_two_processes_is_the_tally_of_all(tmp_path: Path) -> None:
    """What they send each other is done by hand: both tallies are filled first, then added."""
    for name in ("ignored and weights", "sum", "of one's own", "labels"):
        case = LOSSES[name]
        val = samples(case.labels, seed=2)
        exp = Experiment(Net(), val, loss=case.loss(), runs=tmp_path, device="cpu")
        exp.model.eval()
        one, other, whole = (Tally(exp._training) for _ in range(3))
        with torch.no_grad():
            for at, batch in enumerate(as_batches(*val)):
                evaluate(exp._training, batch, (one, other)[at % 2])
                evaluate(exp._training, batch, whole)
            theirs = [
                other._confusion, other._loss, other._right, other._divisor, other._beyond,
                other._answers, torch.tensor(other.num_samples),
            ]  # fmt: skip
            waiting = iter(tensor for tensor in theirs if tensor is not None)
            theirs_kept: list[Any] = []
            other._whole.pool(lambda own: theirs_kept.append(own) or [own])  # noqa: B023
            one.pool(
                lambda tensor: tensor + next(waiting),  # noqa: B023
                lambda number: number,
                # parts of a loss are a dict, and none of these has any
                lambda own: [own, {}] if isinstance(own, dict) else [own, *theirs_kept],  # noqa: B023
            )
            found, expected = one.result(), whole.result()
        assert next(waiting, None) is None
        assert one.num_samples == COUNT
        assert found.loss == pytest.approx(expected.loss, rel=1e-6)
        assert found.accuracy == expected.accuracy
        if expected.confusion is not None:
            assert found.confusion is not None
            assert torch.equal(found.confusion, expected.confusion)
        exp.close()


@pytest.mark.parametrize("name", ["ignored and weights", "soft", "labels", "probabilities"])
def test_accuracy_is_counted_over_what_counts(tmp_path: Path, name: str) -> None:
    case = LOSSES[name]
    val = samples(case.labels, seed=2)
    model = Net(case.end() if case.end else None)
    exp = Experiment(
        model, samples(case.labels, 1), val, loss=case.loss(), batch_size=SIZE, runs=tmp_path,
        device="cpu",
    )  # fmt: skip
    exp.run(wait=True)
    model.eval()
    with torch.no_grad():
        outputs = model(val[0])
    if name in ("labels", "probabilities"):
        right = (outputs > (0.5 if name == "probabilities" else 0)) == (val[1] > 0.5)
    else:
        labels = val[1].argmax(1) if val[1].ndim == 2 else val[1]
        right = (outputs.argmax(1) == labels)[labels != -100]
    accuracy = exp.scalars.history()["val/accuracy"]["value"][-1]
    assert accuracy == pytest.approx(float(right.double().mean()), rel=1e-12)
    exp.close()


@pytest.mark.parametrize("name", ["mean squares", "smooth", "a root"])
def test_numbers_to_come_close_to_have_no_accuracy(tmp_path: Path, name: str) -> None:
    case = LOSSES[name]
    exp = Experiment(
        Net(), samples(case.labels, 1), samples(case.labels, 2), loss=case.loss(), batch_size=SIZE,
        runs=tmp_path, device="cpu",
    )  # fmt: skip
    exp.run(wait=True)
    assert not {"val/accuracy", "train/accuracy"} & set(exp.scalars.history())
    assert exp.best_accuracy is None
    exp.close()
