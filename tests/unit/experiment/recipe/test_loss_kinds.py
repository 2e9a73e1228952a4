"""What is known of a loss: its batches' means add up to the mean of the whole set."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from workbench.experiment.recipe.loss_kinds import KnownLoss, LossKind, counted, look_up
from workbench.experiment.recipe.losses import Loss

COUNT, CLASSES = 11, 4
WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.5])


class Case(NamedTuple):
    loss: Any
    outputs: torch.Tensor
    labels: torch.Tensor


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


LOGITS = random(COUNT, CLASSES)
PIXELS = random(COUNT, CLASSES, 3, 2)
INDICES = torch.arange(COUNT) * 3 % CLASSES
IGNORED = INDICES.where(torch.arange(COUNT) % 3 > 0, -100)
MASKS = torch.arange(COUNT * 6).reshape(COUNT, 3, 2) % CLASSES
SOFT = random(COUNT, CLASSES, seed=1).softmax(1)
LABELS = (random(COUNT, CLASSES, seed=2) > 0).float()
NUMBERS = random(COUNT, CLASSES, seed=3)

CASES: dict[str, Case] = {
    "cross entropy": Case(nn.CrossEntropyLoss(), LOGITS, INDICES),
    "class weights": Case(nn.CrossEntropyLoss(WEIGHTS), LOGITS, INDICES),
    "ignored": Case(nn.CrossEntropyLoss(), LOGITS, IGNORED),
    "ignored and weights": Case(nn.CrossEntropyLoss(WEIGHTS), LOGITS, IGNORED),
    "another ignored": Case(nn.CrossEntropyLoss(WEIGHTS, ignore_index=1), LOGITS, INDICES),
    "smoothed": Case(nn.CrossEntropyLoss(label_smoothing=0.2), LOGITS, IGNORED),
    "smoothed, weights": Case(nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.2), LOGITS, IGNORED),
    "soft": Case(nn.CrossEntropyLoss(), LOGITS, SOFT),
    "soft and weights": Case(nn.CrossEntropyLoss(WEIGHTS), LOGITS, SOFT),
    "masks": Case(nn.CrossEntropyLoss(WEIGHTS), PIXELS, MASKS),
    "soft masks": Case(nn.CrossEntropyLoss(WEIGHTS), PIXELS, PIXELS.flip(0).softmax(1)),
    "function": Case(F.cross_entropy, LOGITS, INDICES),
    "partial": Case(functools.partial(F.cross_entropy, weight=WEIGHTS), LOGITS, IGNORED),
    "partial of a partial": Case(
        functools.partial(functools.partial(F.cross_entropy, ignore_index=0), weight=WEIGHTS),
        LOGITS,
        INDICES,
    ),
    "negative log likelihood": Case(nn.NLLLoss(WEIGHTS), LOGITS.log_softmax(1), IGNORED),
    "nll function": Case(F.nll_loss, PIXELS.log_softmax(1), MASKS),
    "multi margin": Case(nn.MultiMarginLoss(weight=WEIGHTS), LOGITS, INDICES),
    "kl, batchmean": Case(nn.KLDivLoss(reduction="batchmean"), LOGITS.log_softmax(1), SOFT),
    "kl, mean": Case(nn.KLDivLoss(reduction="mean"), LOGITS.log_softmax(1), SOFT),
    "kl of tokens": Case(
        functools.partial(F.kl_div, reduction="batchmean"),
        PIXELS.log_softmax(1),
        PIXELS.flip(0).softmax(1),
    ),
    "bce with logits": Case(nn.BCEWithLogitsLoss(pos_weight=WEIGHTS), LOGITS, LABELS),
    "bce, weights": Case(nn.BCEWithLogitsLoss(weight=WEIGHTS), LOGITS, LABELS),
    "bce": Case(nn.BCELoss(), LOGITS.sigmoid(), LABELS),
    "soft margin": Case(nn.SoftMarginLoss(), LOGITS, LABELS * 2 - 1),
    "multi-label soft margin": Case(nn.MultiLabelSoftMarginLoss(WEIGHTS), LOGITS, LABELS),
    "mean squares": Case(nn.MSELoss(), LOGITS, NUMBERS),
    "absolute": Case(nn.L1Loss(), LOGITS, NUMBERS),
    "smooth": Case(nn.SmoothL1Loss(beta=0.3), LOGITS, NUMBERS),
    "huber": Case(functools.partial(F.huber_loss, delta=0.5), LOGITS, NUMBERS),
    "poisson": Case(nn.PoissonNLLLoss(), LOGITS, NUMBERS.abs()),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 4, 5, 11])
def test_means_times_divisors_are_the_loss_of_the_whole(name: str, size: int) -> None:
    """The judge is torch's own loss of the whole set, in one call."""
    loss, outputs, labels = CASES[name]
    whole = float(loss(outputs, labels))
    known = look_up(loss)
    total, parts = 0.0, 0.0
    for some, theirs in zip(outputs.split(size), labels.split(size), strict=True):
        divisor = known.divisor(some, theirs)
        assert divisor is not None
        if float(divisor):
            total += float(loss(some, theirs)) * float(divisor)
            parts += float(divisor)
    assert total / parts == pytest.approx(whole, rel=1e-5)


def test_a_batch_with_no_label_that_counts_has_no_weight() -> None:
    ignored = torch.full((COUNT,), -100)
    for loss in (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(WEIGHTS), nn.NLLLoss()):
        assert look_up(loss).divisor(LOGITS, ignored) == 0


@pytest.mark.parametrize(
    ("loss", "reduction"),
    [
        (nn.CrossEntropyLoss(reduction="sum"), "sum"),
        (functools.partial(F.mse_loss, reduction="sum"), "sum"),
        (nn.KLDivLoss(reduction="batchmean"), "batchmean"),
        (nn.BCELoss(reduction="none"), "none"),
        (functools.partial(F.cross_entropy, size_average=False), "sum"),
        (functools.partial(F.cross_entropy, reduce=False), "none"),
        (functools.partial(F.cross_entropy, size_average=True, reduction="sum"), "mean"),
        (F.cross_entropy, "mean"),
        (lambda logits, labels: logits.sum(), "mean"),
    ],
)
def test_reductions(loss: Any, reduction: str) -> None:
    assert look_up(loss).reduction == reduction
    assert Loss(loss).sums is (reduction == "sum")


class Focal(nn.CrossEntropyLoss):
    """Another mean of the same outputs and labels."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return super().forward(input, target).square()


class Centres(nn.Module):
    """Makes scores itself, with parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.eye(CLASSES))

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(features @ self.centres, labels)


class Other(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a - b).abs().max()


def of_ones_own(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        (Focal(WEIGHTS), LossKind.CLASSES),
        (Centres(), LossKind.FEATURES),
        (Other(), LossKind.OTHER),
        (of_ones_own, LossKind.OTHER),
        (functools.partial(of_ones_own), LossKind.OTHER),
        (functools.partial(F.cross_entropy, LOGITS), LossKind.OTHER),
        (None, LossKind.OTHER),
    ],
)
def test_of_a_loss_of_ones_own_no_mean_is_assumed(loss: Any, kind: LossKind) -> None:
    known = look_up(loss)
    assert known.kind is kind
    assert known.divisor(LOGITS, INDICES) is None


def test_labels_that_are_no_tensor_have_no_divisor() -> None:
    assert look_up(F.cross_entropy).divisor(LOGITS, {"labels": INDICES}) is None


def test_settings_of_a_module_are_those_it_has_now() -> None:
    """Weights of classes that a cell exchanges in the course of a training, as DRW does."""
    loss = nn.CrossEntropyLoss()
    known = look_up(loss)
    loss.weight = WEIGHTS
    loss.ignore_index = 2
    expected = WEIGHTS[INDICES[INDICES != 2]].sum()
    assert known.divisor(LOGITS, INDICES) == pytest.approx(float(expected))
    loss.reduction = "sum"
    assert known.reduction == "sum"


def test_which_labels_count() -> None:
    """As uint8, −100 would be class 156."""
    labels = torch.tensor([156, 3, 255], dtype=torch.uint8)
    assert counted(labels, -100).tolist() == [True, True, True]
    assert counted(labels, 255).tolist() == [True, True, False]
    assert counted(torch.tensor([-100, 0]), -100).tolist() == [False, True]


@pytest.mark.parametrize(
    "make", [nn.CrossEntropyLoss, nn.MSELoss, nn.BCELoss, nn.BCEWithLogitsLoss, nn.KLDivLoss]
)
def test_what_torch_calls_by_two_names_is_one(make: Callable[[], nn.Module]) -> None:
    functions: dict[Any, Any] = {
        nn.CrossEntropyLoss: F.cross_entropy,
        nn.MSELoss: F.mse_loss,
        nn.BCELoss: F.binary_cross_entropy,
        nn.BCEWithLogitsLoss: F.binary_cross_entropy_with_logits,
        nn.KLDivLoss: F.kl_div,
    }
    module, function = look_up(make()), look_up(functions[make])
    assert (module.kind, module.per) == (function.kind, function.per)
    assert module.per
    assert KnownLoss().per is None


@pytest.mark.parametrize(
    ("loss", "shape", "expected"),
    [
        (nn.BCEWithLogitsLoss(weight=torch.ones(11, 1)), (11, 4), True),
        (nn.BCEWithLogitsLoss(weight=torch.ones(4)), (11, 4), False),
        (nn.BCEWithLogitsLoss(weight=torch.ones(1, 4)), (11, 4), False),
        (nn.BCELoss(weight=torch.ones(11)), (11,), True),
        (functools.partial(F.binary_cross_entropy, weight=torch.ones(11)), (11,), True),
        (nn.CrossEntropyLoss(weight=torch.ones(4)), (11, 4), False),
        (nn.MSELoss(), (11, 4), False),
    ],
)
def test_a_weight_for_each_sample_is_known(
    loss: Any, shape: tuple[int, ...], *, expected: bool
) -> None:
    assert look_up(loss).weighs_rows(torch.zeros(shape)) is expected
