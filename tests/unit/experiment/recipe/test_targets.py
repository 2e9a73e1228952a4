"""What a model answers and what is right, by what its loss compares; else nothing is counted."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from workbench.experiment import Experiment, RunError
from workbench.experiment.data.data import DataError
from workbench.experiment.recipe.loss_kinds import look_up
from workbench.experiment.recipe.losses import Loss
from workbench.experiment.recipe.targets import AnswerReader

BATCH, CLASSES, TOKENS = 6, 4, 5


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def reader_of(loss: Any, logits: torch.Tensor, targets: Any) -> AnswerReader:
    """A reader that has decided by this batch."""
    reader = AnswerReader(look_up(loss))
    reader.decide(logits, targets)
    return reader


def tally(reader: AnswerReader, logits: torch.Tensor, targets: Any) -> tuple[int, int] | None:
    found = reader.read(logits, targets)
    if found is None:
        return None
    right, answers = found.tally()
    return int(right), int(answers)


def by_hand(scores: list[list[float]], wanted: list[int]) -> int:
    """Rows whose largest score stands where it is wanted."""
    return sum(row.index(max(row)) == one for row, one in zip(scores, wanted, strict=True))


def of_ones_own(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels)


def of_one_hot(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels.argmax(1))


def of_tokens(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


LOGITS = random(BATCH, CLASSES)
INDICES = torch.tensor([0, 3, 1, 2, 2, 0])
RIGHT = by_hand(LOGITS.tolist(), INDICES.tolist())
SOFT = 0.8 * F.one_hot(INDICES, CLASSES) + 0.2 / CLASSES


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        (nn.CrossEntropyLoss(), INDICES),
        (nn.CrossEntropyLoss(), F.one_hot(INDICES, CLASSES).float()),
        (nn.CrossEntropyLoss(), SOFT),
        (functools.partial(F.cross_entropy, label_smoothing=0.1), INDICES),
        (nn.NLLLoss(), INDICES),
        (nn.MultiMarginLoss(), INDICES),
        (nn.KLDivLoss(reduction="batchmean"), SOFT),
        (nn.KLDivLoss(reduction="batchmean", log_target=True), SOFT.log()),
        (of_ones_own, INDICES),
        (of_ones_own, SOFT),
        (of_one_hot, F.one_hot(INDICES, CLASSES).float()),
        (of_ones_own, INDICES.to(torch.uint8)),
    ],
)
def test_the_class_with_the_largest_score_is_the_answer(loss: Any, labels: torch.Tensor) -> None:
    assert 0 < RIGHT < BATCH
    reader = reader_of(loss, LOGITS, labels)
    assert reader.reads
    assert tally(reader, LOGITS, labels) == (RIGHT, BATCH)
    assert reader.note == ""


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        (nn.MSELoss(), SOFT),
        (nn.L1Loss(), LOGITS),
        (lambda a, b: (a - b).square().mean(), LOGITS.flip(0)),
        (lambda a, b: (a - b).square().mean(), random(BATCH)),
        (of_ones_own, {"labels": INDICES}),
        (of_ones_own, random(BATCH, 2)),
        (nn.CrossEntropyLoss(), {"labels": INDICES}),
    ],
)
def test_where_nothing_can_be_right_there_is_no_accuracy(loss: Any, labels: Any) -> None:
    assert tally(reader_of(loss, LOGITS, labels), LOGITS, labels) is None


def test_nothing_is_counted_under_a_loss_that_makes_scores_itself() -> None:
    """Features have a largest entry too, and it is no answer."""

    class Centres(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centres = nn.Parameter(torch.eye(CLASSES))

    assert tally(reader_of(Centres(), LOGITS, INDICES), LOGITS, INDICES) is None


LABELS = (random(BATCH, CLASSES, seed=1) > 0).float()
SAME = sum(
    (logit > 0) == bool(label)
    for logit, label in zip(LOGITS.flatten().tolist(), LABELS.flatten().tolist(), strict=True)
)


@pytest.mark.parametrize(
    ("loss", "outputs", "labels"),
    [
        (nn.BCEWithLogitsLoss(), LOGITS, LABELS),
        (nn.MultiLabelSoftMarginLoss(), LOGITS, LABELS),
        (nn.SoftMarginLoss(), LOGITS, LABELS * 2 - 1),
        (nn.BCELoss(), LOGITS.sigmoid(), LABELS),
        (lambda a, b: a.sum(), LOGITS * 10, LABELS.long()),
    ],
)
def test_several_labels_are_counted_each_by_itself_and_it_is_said(
    loss: Any, outputs: torch.Tensor, labels: torch.Tensor
) -> None:
    assert 0 < SAME < BATCH * CLASSES
    reader = reader_of(loss, outputs, labels)
    assert tally(reader, outputs, labels) == (SAME, BATCH * CLASSES)
    assert reader.note == "accuracy counts each of the 4 labels of a sample by itself"


@pytest.mark.parametrize("column", [False, True])
def test_one_probability_is_compared_with_a_half(column: bool) -> None:
    """0.3 would be a yes where it was taken for a logit."""
    outputs, labels = torch.tensor([0.3, 0.6, 0.9, 0.1]), torch.tensor([0.0, 1.0, 0.0, 1.0])
    if column:
        outputs = outputs[:, None]
    reader = reader_of(nn.BCELoss(), outputs, labels)
    assert tally(reader, outputs, labels) == (2, 4)
    assert reader.note == ""


def test_one_logit_under_a_loss_of_ones_own() -> None:
    """Probabilities and logits look alike only where all lie between 0 and 1: then nobody knows."""
    labels = torch.tensor([1, 0, 0, 1])

    def own(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.softplus((1 - 2 * labels) * logits.squeeze(1)).mean()

    logits = torch.tensor([[2.0], [0.4], [-1.0], [0.1]])
    assert tally(reader_of(own, logits, labels), logits, labels) == (3, 4)
    maybe = logits.sigmoid()
    unknown = reader_of(own, maybe, labels)
    assert tally(unknown, maybe, labels) is None
    assert unknown.note.startswith("no accuracy is shown: the loss does not say what it takes")
    signs = labels * 2 - 1
    for values in (signs, signs.float(), signs[:, None].double()):
        assert tally(reader_of(own, logits, values), logits, values) == (3, 4)
        assert tally(reader_of(own, maybe, values), maybe, values) is None, "distances, maybe"
        apart = nn.HingeEmbeddingLoss()
        assert tally(reader_of(apart, logits, values), logits, values) is None, "small is alike"
    bytes_ = torch.tensor([1, 255, 255, 1], dtype=torch.uint8)
    assert tally(reader_of(own, logits, bytes_), logits, bytes_) is None, "255 is not -1"


def test_ignored_labels_are_no_answers() -> None:
    labels = torch.tensor([0, -100, 1, -100, 2, 0])
    right = by_hand(
        [row for row, one in zip(LOGITS.tolist(), labels.tolist(), strict=True) if one >= 0],
        [0, 1, 2, 0],
    )
    for loss in (nn.CrossEntropyLoss(), nn.NLLLoss(), of_ones_own):
        assert tally(reader_of(loss, LOGITS, labels), LOGITS, labels) == (right, 4)


def tokens(length: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Logits with the classes last, labels, and how many are right."""
    logits = random(BATCH, length, CLASSES, seed=seed)
    labels = torch.arange(BATCH * length).reshape(BATCH, length) % CLASSES
    right = by_hand(logits.flatten(0, 1).tolist(), labels.flatten().tolist())
    return logits, labels, right


def test_classes_last_are_decided_once() -> None:
    """A batch that is as long as there are classes is read as all others."""
    logits, labels, right = tokens(TOKENS)
    reader = reader_of(of_tokens, logits, labels)
    assert tally(reader, logits, labels) == (right, BATCH * TOKENS)
    assert "the last dimension of the logits, [6, 5, 4], for the classes" in reader.note
    note = reader.note
    logits, labels, right = tokens(CLASSES, seed=4)
    second = (logits.argmax(1) == labels).sum()
    assert right != second, "the test tells nothing"
    reader.decide(logits, labels)
    assert tally(reader, logits, labels) == (right, BATCH * CLASSES)
    assert reader.note == note


def test_classes_second_are_decided_once() -> None:
    logits, labels, right = tokens(TOKENS)
    reader = reader_of(of_ones_own, logits.mT, labels)
    assert tally(reader, logits.mT, labels) == (right, BATCH * TOKENS)
    assert "the second dimension" in reader.note
    logits, labels, right = tokens(CLASSES, seed=4)
    assert tally(reader, logits.mT, labels) == (right, BATCH * CLASSES)


def test_cross_entropy_has_its_classes_second_whatever_the_lengths_are() -> None:
    logits, labels, right = tokens(CLASSES, seed=4)
    reader = reader_of(nn.CrossEntropyLoss(), logits.mT, labels)
    assert tally(reader, logits.mT, labels) == (right, BATCH * CLASSES)
    assert reader.note == ""


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(ignore_index=3), nn.NLLLoss(), of_ones_own])
def test_segmentation_counts_every_pixel(loss: Any) -> None:
    logits = random(2, CLASSES, 3, 5)
    labels = torch.arange(30).reshape(2, 3, 5) % CLASSES
    ignored = 3 if isinstance(loss, nn.CrossEntropyLoss) else -100
    rows = [
        (logits[at, :, i, j].tolist(), int(labels[at, i, j]))
        for at in range(2)
        for i in range(3)
        for j in range(5)
        if int(labels[at, i, j]) != ignored
    ]
    right = by_hand([row for row, _ in rows], [one for _, one in rows])
    assert tally(reader_of(loss, logits, labels), logits, labels) == (right, len(rows))


def test_a_divergence_of_tokens_does_not_say_where_its_classes_are() -> None:
    """KLDivLoss takes all numbers for itself, so their largest along dimension 1 means nothing."""
    outputs = random(BATCH, TOKENS, CLASSES).log_softmax(-1)
    labels = random(BATCH, TOKENS, CLASSES, seed=1).softmax(-1)
    assert tally(reader_of(nn.KLDivLoss(), outputs, labels), outputs, labels) is None


def test_integer_one_hot_labels_are_refused_with_a_sentence(tmp_path: Path) -> None:
    one_hot = F.one_hot(INDICES, CLASSES)
    sentence = r"one-hot integers: cross entropy takes classes \[batch\] \(labels.argmax\(1\)\)"
    with pytest.raises(DataError, match=sentence):
        Loss().check(LOGITS, one_hot)
    exp = Experiment(
        nn.Linear(3, CLASSES), (random(BATCH, 3), one_hot), runs=tmp_path, device="cpu"
    )
    with pytest.raises(RunError, match="one-hot integers"):
        exp.run().wait(60)
    exp.close()


def test_a_softmax_before_cross_entropy_is_noted(tmp_path: Path) -> None:
    for end, is_noted in ((nn.Softmax(1), True), (nn.Identity(), False), (nn.Sigmoid(), False)):
        model = nn.Sequential(nn.Linear(3, CLASSES), end)
        exp = Experiment(
            model, (random(BATCH, 3), INDICES), runs=tmp_path, device="cpu", name=type(end).__name__
        )
        exp.run(wait=True)
        assert any("leave out the softmax" in note for note in exp.notes) is is_noted
        exp.close()


# -- labels that are no class ---------------------------------------------------------------------


@pytest.mark.parametrize("ignored", [255, -1, 0])
@pytest.mark.parametrize("kind", ["rows", "pixels"])
def test_labels_that_a_lambda_ignores_count_nowhere(
    tmp_path: Path, ignored: int, kind: str
) -> None:
    """In training and in validation, by rows and by pixels; the judge counts by hand."""
    generator = torch.Generator().manual_seed(3)
    size = () if kind == "rows" else (4, 4)
    x = torch.randn(48, 5, *size, generator=generator)
    y = torch.randint(0, 3, (48, *size), generator=generator)
    y[torch.rand(y.shape, generator=generator) < 0.5] = ignored
    model = nn.Linear(5, 3) if kind == "rows" else nn.Conv2d(5, 3, 1)
    losses = {
        255: lambda o, y: F.cross_entropy(o, y, ignore_index=255),
        -1: lambda o, y: F.cross_entropy(o, y, ignore_index=-1),
        0: lambda o, y: F.cross_entropy(o, y, weight=None, ignore_index=0, label_smoothing=0.0),
    }
    with torch.no_grad():
        right = (model(x).argmax(1) == y)[y != ignored].double().mean()
    exp = Experiment(
        model, (x, y), (x, y), loss=losses[ignored], batch_size=16, runs=tmp_path, device="cpu",
        optimizer=lambda p: torch.optim.SGD(p, lr=0.0),
    )  # fmt: skip
    exp.run(wait=True)
    exp.close()
    assert exp.scalars.last("val/accuracy")[0] == pytest.approx(float(right))
    assert exp.scalars.last("train/accuracy")[0] == pytest.approx(float(right))


PAD = 2


class WithPadding:
    def __init__(self) -> None:
        self.padding = 3

    def __call__(self, o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(o, y, ignore_index=self.padding)


def by_a_default(o: torch.Tensor, y: torch.Tensor, pad: int = 1) -> torch.Tensor:
    return F.cross_entropy(o, y, ignore_index=pad)


def by_a_helper(o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return 2 * by_a_default(o, y)


def computed(o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(o, y, ignore_index=int(y.max()))


def two(o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(o, y, ignore_index=1) + F.nll_loss(o, y, ignore_index=2)


def closed_over(pad: int) -> Any:
    return lambda o, y: F.cross_entropy(o.flatten(0, 0), y, ignore_index=pad, reduction="mean")


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (lambda o, y: F.cross_entropy(o, y, ignore_index=PAD), 2),
        (closed_over(3), 3),
        (WithPadding(), 3),
        (by_a_default, 1),
        (by_a_helper, 1),
        (functools.partial(by_a_default, pad=0), 0),
        (of_ones_own, -100),
        (computed, None),
        (two, None),
    ],
)
def test_the_ignored_label_is_read_from_the_code(loss: Any, label: int | None) -> None:
    """Where it is not evident, it is said what accuracy counts."""
    assert look_up(loss).ignore_index == (-100 if label is None else label)
    notes = Loss(loss).check(LOGITS, INDICES)
    assert any("does not say plainly which" in note for note in notes) is (label is None)


def of_ranks(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """CORAL: a column for each threshold between ranks, and so one rank more than columns."""
    wanted = labels[:, None] > torch.arange(logits.shape[1])
    return F.binary_cross_entropy_with_logits(logits, wanted.float())


@pytest.mark.parametrize("validates", [True, False])
def test_ranks_that_show_in_a_later_batch_are_no_classes(tmp_path: Path, validates: bool) -> None:
    ranks = torch.arange(64) % (CLASSES + 1)
    ranks[:16].clamp_(max=CLASSES - 1)
    data = random(64, 3), ranks
    exp = Experiment(
        nn.Linear(3, CLASSES), data, data if validates else None, loss=of_ranks, batch_size=16,
        shuffle=False, runs=tmp_path, device="cpu",
    )  # fmt: skip
    exp.run(epochs=2, wait=True)
    exp.close()
    assert "val/accuracy" not in exp.scalars.history()
    steps = exp.scalars.since("train/accuracy", 0)[0].tolist()
    assert not steps or max(steps) < 2, "nothing is known before the second batch"


def test_ranks_decide_by_the_batch_of_all_of_them() -> None:
    """Each alone decides otherwise: one part alone has a logit beyond 1, or a label beyond 3."""
    mild = torch.tensor([[0.2], [0.9], [0.4], [0.1]])
    wide = LOGITS[:4].abs() / 10
    cases = [
        (torch.cat([mild, 3 * mild]), torch.tensor([1, 0, 0, 1, 1, 1, 0, 0])),
        (torch.cat([wide, wide]), torch.tensor([0, 1, 2, 3, 0, 4, 1, 2])),
        (torch.cat([wide, wide]), torch.cat([SOFT[:4], SOFT[:4] * 2])),
        (torch.cat([mild, -mild]), torch.tensor([1, 1, 1, 1, 1, -1, -1, 1])),
    ]
    for outputs, labels in cases:
        parts = list(zip(outputs.split(4), labels.split(4), strict=True))
        alone = [reader_of(lambda a, _: a.sum(), *part).decision for part in parts]
        assert alone[0] != alone[1], "the test tells nothing"
        reported: list[list[bool]] = []
        for part in parts:
            reader = AnswerReader(look_up(lambda a, _: a.sum()))
            reader.decide(
                *part, lambda facts, reported=reported: reported.append(list(facts)) or facts
            )
        together = [all(both) for both in zip(*reported, strict=True)]
        for part in parts:
            reader = AnswerReader(look_up(lambda a, _: a.sum()))
            reader.decide(*part, lambda _: together)  # noqa: B023
            whole = reader_of(lambda a, _: a.sum(), outputs, labels)
            assert reader.decision == whole.decision
