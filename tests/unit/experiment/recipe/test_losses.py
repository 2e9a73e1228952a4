"""The loss chosen, and what is said of a batch it cannot take."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from workbench.experiment import Experiment
from workbench.experiment.data.data import DataError
from workbench.experiment.recipe.losses import Loss, check_loss, logits_of


def test_cross_entropy_is_the_default_and_gives_torchs_own_value() -> None:
    logits, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    loss = Loss()
    assert loss.name == "cross entropy"
    loss.check(logits, labels)
    assert torch.equal(loss(logits, labels), F.cross_entropy(logits, labels))


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (torch.randn(4), torch.tensor([0, 1, 1, 0])),
        (torch.randn(4, 1), torch.tensor([0, 1, 1, 0])),
        (torch.randn(4, 3), torch.rand(4, 3).round()),
    ],
    ids=["one logit", "one column", "multi-label"],
)
def test_binary_cross_entropy_is_chosen_where_it_fits(
    logits: torch.Tensor, labels: torch.Tensor
) -> None:
    loss = Loss()
    loss.check(logits, labels)
    assert loss.name == "binary cross entropy"
    expected = F.binary_cross_entropy_with_logits(logits, labels.reshape(logits.shape).float())
    assert torch.equal(loss(logits, labels), expected)


def test_names_of_what_is_given() -> None:
    def focal(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return logits.sum()

    assert Loss(nn.CrossEntropyLoss(label_smoothing=0.1)).name == "cross entropy"
    assert Loss("bce").name == "binary cross entropy"
    assert Loss(focal).name == "focal"
    with pytest.raises(TypeError, match="loss is a int"):
        Loss(3)


def test_a_label_that_the_loss_ignores_is_in_range_and_no_wrong_answer(tmp_path: Path) -> None:
    """255 is the border in PASCAL VOC's masks, -100 cross entropy's own default."""
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, 2.0]])
    for loss, unknown in ((Loss(nn.CrossEntropyLoss(ignore_index=255)), 255), (Loss(), -100)):
        labels = torch.tensor([0, unknown, 1, unknown])
        loss.check(logits, labels)
        answers = loss.answers.read(logits, labels)
        assert answers is not None
        assert [int(number) for number in answers.tally()] == [1, 2]
    bytes_ = torch.full((2,), 156, dtype=torch.uint8)
    loss = Loss("cross_entropy")
    answers = loss.answers.read(F.one_hot(bytes_.long(), 200).float(), bytes_)
    assert answers is not None
    assert [int(number) for number in answers.tally()] == [2, 2]
    with pytest.raises(DataError, match="the labels run from 0 to 255"):
        Loss().check(logits, torch.tensor([0, 255, 1, 255]))

    x, y = torch.randn(64, 2), torch.randint(0, 2, (64,))
    y[::2] = 255
    exp = Experiment(
        nn.Linear(2, 2),
        (x, y),
        (x, y),
        loss=nn.CrossEntropyLoss(ignore_index=255),
        batch_size=32,
        runs=tmp_path,
        device="cpu",
    )
    exp.run(epochs=1, wait=True)
    with torch.no_grad():
        right = exp.model(x).argmax(1) == y
    assert exp.best_accuracy == right[1::2].double().mean().item()
    assert exp._training.last_validation is not None
    confusion = exp._training.last_validation.confusion
    assert confusion is not None
    assert confusion.sum() == 32


def test_logits_are_found_where_models_put_them() -> None:
    tensor = torch.zeros(2, 3)
    assert logits_of(tensor) is tensor
    assert logits_of(SimpleNamespace(logits=tensor)) is tensor
    assert logits_of({"logits": tensor}) is tensor
    with pytest.raises(
        DataError, match=r"returned a tuple of \[2, 3\] float32 and a dict; it must"
    ):
        logits_of((tensor, {}))


def test_what_to_do_about_labels_is_said_and_helps() -> None:
    logits, labels = torch.randn(4, 5, 7), torch.randint(0, 7, (4, 5))
    with pytest.raises(DataError, match=r"loss=lambda logits, labels: F\.cross_entropy") as raised:
        Loss().check(logits, labels)
    given = eval(str(raised.value).partition("loss=")[2], {"F": F})
    loss = Loss(given)
    loss.check(logits, labels)
    assert loss(logits, labels).item() == pytest.approx(
        F.cross_entropy(logits.flatten(0, 1), labels.flatten()).item(), rel=1e-6
    )

    for found, words in (
        (torch.tensor([1, 3]), r"be in 0\.\.2: give labels - 1"),
        (torch.tensor([0, -1]), r"give loss=torch\.nn\.CrossEntropyLoss\(ignore_index=-1\)"),
        (torch.tensor([0, 9]), "give the last layer 10 outputs, or look where 9 comes from"),
        (torch.tensor([[0], [1]]), r"give labels\.squeeze\(1\)"),
    ):
        with pytest.raises(DataError, match=words):
            Loss().check(torch.randn(2, 3), found)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (torch.zeros(4, requires_grad=True) * 1, r"has shape \[4\]; .*reduction='mean'"),
        (torch.tensor(1.0), "does not depend on any trainable parameter"),
        (0.5, "the loss is a float"),
    ],
)
def test_a_loss_that_cannot_be_trained_on(loss: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        check_loss(loss)


def test_ignored_labels_are_not_out_of_range() -> None:
    Loss().check(torch.randn(3, 2), torch.tensor([-100, 0, 1]))


def test_dense_targets_are_taken() -> None:
    Loss().check(torch.randn(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.long))
