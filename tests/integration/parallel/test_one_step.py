"""A step of ranks is the step of one process, whatever the loss averages over and the data draw.

The judge is a plain loop over the same batches: losses and weights to 1e-6. Every case trains in
one start of two ranks, which takes longer than all of them.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.integration.parallel.one_start import (
    BATCH,
    STEPS,
    Case,
    Trained,
    experiment,
    plain_loop,
    trained,
)
from tests.integration.parallel.support import (
    CLASSES,
    SAMPLES,
    Net,
    Tokens,
    rows,
    sentences,
)

WEIGHTS = torch.arange(1.0, CLASSES + 1)


# -- losses ---------------------------------------------------------------------------------


def ignored() -> tuple[torch.Tensor, torch.Tensor]:
    """Labels of which many do not count, unevenly."""
    inputs, targets = rows()
    targets[: SAMPLES // 3] = -100
    targets[torch.rand(SAMPLES, generator=torch.Generator().manual_seed(1)) < 0.3] = -100
    return inputs, targets


def zeros_ignored() -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = rows()
    targets[: SAMPLES // 2] = 0
    return inputs, targets


def numbers() -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = rows()
    return inputs, F.one_hot(targets, CLASSES).float()


def ignores_zero(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return 2 * F.cross_entropy(logits, labels, ignore_index=0)


class Smoothed(nn.CrossEntropyLoss):
    """A subclass with a mean of its own."""

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        each = F.cross_entropy(logits, labels, WEIGHTS, reduction="none", label_smoothing=0.1)
        return each.sum() / WEIGHTS[labels.clamp(min=0)][labels >= 0].sum()


class Inside(nn.Module):
    """A module of one's own around torch's, that adds up."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.inner = nn.CrossEntropyLoss(**settings)

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.inner(logits, labels)


def two_terms(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """One is averaged over labels that count, the other over samples."""
    return F.cross_entropy(logits, labels) + 0.1 * logits.pow(2).mean()


def root(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (logits - labels).pow(2).mean().sqrt()


def contrastive(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Samples of a batch are compared with each other."""
    near = F.normalize(features, dim=1)
    near = near @ near.T / 0.3
    same = (labels[:, None] == labels).float().fill_diagonal_(0)
    off = torch.eye(len(labels), dtype=torch.bool)
    log_share = near - near.masked_fill(off, -torch.inf).logsumexp(1, keepdim=True)
    return -(same * log_share).sum() / same.sum().clamp(min=1)


class Counting(nn.Module):
    """Its second call and those after it weigh by labels seen so far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(CLASSES))

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.seen += torch.bincount(labels, minlength=CLASSES)
        return F.cross_entropy(logits, labels, self.seen.sum() / self.seen)


def drawing(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Leaves out samples at random, by each of the generators."""
    kept = torch.rand(len(labels)) + float(np.random.rand()) + random.random()
    return (F.cross_entropy(logits, labels, reduction="none") * kept).sum() / kept.sum()


def writing(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Writes into both of what it is given."""
    labels[labels == -100] = 0
    logits.mul_(0.5)
    return F.cross_entropy(logits, labels, ignore_index=1)


class Penalty:
    """Takes weights of the model past its outputs, one of them of a layer that no forward calls."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        weights = (parameter.pow(2).sum() for parameter in self.model.parameters())
        return F.cross_entropy(logits, labels) + 0.01 * sum(weights)


def in_parts(logits: torch.Tensor, labels: Any) -> torch.Tensor:
    """Labels are a mapping, of which some are a list and one belongs to all samples."""
    kept = torch.tensor([name != "left out" for name in labels["names"]])
    each = F.cross_entropy(logits, labels["classes"], reduction="none") * labels["share"]
    return (each * kept).sum() / kept.sum()


def over_time(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.mean(0), labels, ignore_index=0)


def flat_tokens(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels.flatten())


def every_pair(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``[batch, 1]`` against ``[batch]``."""
    return F.mse_loss(logits.mean(1, keepdim=True), labels.float())


# -- data that draw -------------------------------------------------------------------------


class Augmented(Dataset[Any]):
    """Every sample is changed by numbers of all generators that a data set may draw from."""

    def __init__(self, *which: str) -> None:
        self.inputs, self.targets = rows()
        self.which = which
        self.own = np.random.default_rng(3)
        self.pythons = random.Random(3)
        self.torchs = torch.Generator().manual_seed(3)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, row: int) -> Any:
        draw: dict[str, Callable[[], float]] = {
            "random": random.random,
            "numpy": lambda: float(np.random.rand()),
            "torch": lambda: float(torch.rand(())),
            "own": lambda: float(self.own.random()),
            "pythons": self.pythons.random,
            "torchs": lambda: float(torch.rand((), generator=self.torchs)),
        }
        return self.inputs[row] + sum(draw[one]() for one in self.which), self.targets[row]


def augmented(*which: str) -> Callable[[], Any]:
    return lambda: DataLoader(Augmented(*which), batch_size=BATCH, shuffle=True)


def mixed(samples: list[Any]) -> Any:
    """Mixes each sample with the one before it, of the whole batch."""
    inputs, targets = torch.utils.data.default_collate(samples)
    share = random.random()
    labels = F.one_hot(targets, CLASSES).float()
    return (
        share * inputs + (1 - share) * inputs.roll(1, 0),
        share * labels + (1 - share) * labels.roll(1, 0),
    )


def centred(samples: list[Any]) -> Any:
    """Looks at the whole batch, and draws nothing."""
    inputs, targets = torch.utils.data.default_collate(samples)
    return {"x": inputs - inputs.mean(0), "labels": targets}


def named(samples: list[Any]) -> Any:
    inputs, targets = torch.utils.data.default_collate(samples)
    names = ["left out" if label == 0 else "kept" for _, label in samples]
    return inputs, {"names": names, "classes": targets, "share": torch.tensor(0.5)}


def padded(samples: list[Any]) -> Any:
    """To the longest of the batch; the model takes the mean over all of it."""
    rows = [sample.repeat(1 + int(label), 1) for sample, label in samples]
    targets = torch.stack([label for _, label in samples])
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), targets


class Unexpected(Augmented):
    """Draws for one class alone, which is not in the first batch of a run in order."""

    def __getitem__(self, row: int) -> Any:
        if row < 2 * BATCH:
            return self.inputs[row], self.targets[row]
        return super().__getitem__(row)


class Named(Net):
    def forward(self, x: torch.Tensor) -> Any:  # type: ignore[override]
        return {"logits": super().forward(x), "more": [{"x": x}]}


class Lengths(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.mean(1))


class Times(Net):
    """Its outputs have a dimension of time before that of samples."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([super(Times, self).forward(x * times) for times in (1.0, 2.0, 3.0)])


# -- models ---------------------------------------------------------------------------------


class Skips(Net):
    """Leaves a block out by one number for the whole batch, of Python's, NumPy's or torch's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        draws = (random.random(), float(np.random.rand()), float(torch.rand(())))
        for block, number in zip(self.blocks, draws, strict=True):
            x = block(x) if number < 0.6 else x
        return self.head(x)


class Output:
    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


class Unused(Net):
    """An object for an output, with a head that the loss does not see, and one never called."""

    def __init__(self) -> None:
        super().__init__()
        self.aside, self.never = nn.Linear(32, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:  # type: ignore[override]
        found = Output(super().forward(x))
        found.aside = self.aside(self.stem(x))  # type: ignore[attr-defined]
        return found


class Nested(Unused):
    def forward(self, x: torch.Tensor) -> Any:
        found = super().forward(x)
        return {"inner": {"aside": [found.aside]}, "logits": found.logits}


class Reentrant(Net):
    """A block inside of two reentrant checkpoints, and one that only some steps reach."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        x = torch.relu(self.stem(x))
        for block in (self.blocks[0], self.blocks[0], self.blocks[1]):
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x)


class Normed(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.stem(x))))


def few() -> tuple[torch.Tensor, torch.Tensor]:
    """16 samples: batches of 3, and one left over, which batch norm refuses."""
    inputs, targets = rows()
    return inputs[:16], targets[:16]


class Unused0(Net):
    def __init__(self) -> None:
        super().__init__()
        self.never = nn.Linear(3, 3)


class Flat(nn.Module):
    """``[batch, classes, tokens]`` as ``[batch * tokens, classes]``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).flatten(0, 1)


class Records(Net):
    """Keeps what its forward draws for each row, of both ranks."""

    def __init__(self, draw: Callable[[int], torch.Tensor]) -> None:
        super().__init__()
        self.draw = draw
        self.register_buffer("drawn", torch.zeros(2, BATCH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.zeros(2, BATCH)
        drawn = self.draw(len(x))
        if torch.distributed.is_initialized():
            rows[torch.distributed.get_rank(), : len(x)] = drawn
            torch.distributed.all_reduce(rows)
            self.drawn.copy_(rows)
        return super().forward(x + drawn[:, None])


def by_numpy(rows: int) -> torch.Tensor:
    return torch.from_numpy(np.random.rand(rows)).float()


def by_python(rows: int) -> torch.Tensor:
    return torch.tensor([random.random() for _ in range(rows)])


CE = nn.CrossEntropyLoss
CASES: dict[str, Case] = {
    "a function": Case(data=ignored),
    "torch's function": Case(data=ignored, loss=F.cross_entropy),
    "a partial": Case(
        data=zeros_ignored, loss=functools.partial(F.cross_entropy, ignore_index=0, weight=WEIGHTS)
    ),
    "a partial of a function": Case(
        "fsdp:2", data=zeros_ignored, loss=functools.partial(ignores_zero)
    ),
    "a subclass": Case(data=ignored, loss=Smoothed()),
    "a module": Case(data=ignored, loss=Inside(weight=WEIGHTS, label_smoothing=0.1)),
    "a module that adds up": Case("fsdp:2", data=ignored, loss=Inside(reduction="sum")),
    "torch's sum": Case(data=ignored, loss=CE(reduction="sum")),
    "label smoothing": Case(data=ignored, loss=CE(weight=WEIGHTS, label_smoothing=0.2)),
    "soft labels": Case(data=numbers, loss=CE(weight=WEIGHTS)),
    "two terms": Case("fsdp:2", data=ignored, loss=two_terms),
    "a root": Case(data=numbers, loss=root),
    "samples that are compared": Case(loss=contrastive),
    "samples that are compared, sharded": Case("fsdp:2", loss=contrastive),
    "bce with pos_weight": Case(data=numbers, loss=nn.BCEWithLogitsLoss(pos_weight=WEIGHTS)),
    "multi margin": Case(loss=nn.MultiMarginLoss(weight=WEIGHTS)),
    "nll": Case(
        data=ignored,
        model=lambda: nn.Sequential(Net(), nn.LogSoftmax(1)),
        loss=nn.NLLLoss(weight=WEIGHTS),
    ),
    "a loss that counts": Case(loss=Counting()),
    "a loss that draws": Case(loss=drawing),
    "a loss that writes": Case(data=ignored, loss=writing),
    "a penalty on weights": Case(data=ignored, model=Unused0, loss=Penalty, of_model=True),
    "labels of many kinds": Case(
        data=lambda: DataLoader(Augmented(), BATCH, collate_fn=named), loss=in_parts, in_order=True
    ),
    "samples in the second dimension": Case(model=Times, loss=over_time),
    "tokens in one dimension": Case(
        model=lambda: nn.Sequential(Tokens(), Flat()), data=sentences, loss=flat_tokens
    ),
    "outputs against all labels": Case(loss=every_pair),
    "torch's mean over all pairs": Case(
        model=lambda: nn.Sequential(Net(), nn.Linear(CLASSES, 1)),
        data=lambda: (rows()[0], rows()[1].float()),
        loss=nn.MSELoss(),
    ),
    "clipped": Case(data=ignored, loss=two_terms, settings={"clip_grad_norm": 0.1}),
    "clipped, sharded": Case(
        "fsdp:2", data=ignored, loss=contrastive, settings={"clip_grad_norm": 0.1}
    ),
    **{
        f"samples that draw from {one}": Case(data=augmented(one), loss=F.cross_entropy)
        for one in ("random", "numpy", "torch", "own", "pythons", "torchs")
    },
    "samples that draw, sharded": Case("fsdp:2", data=augmented("random", "own", "torch")),
    "a batch that is mixed": Case(
        data=lambda: DataLoader(Augmented("numpy"), BATCH, collate_fn=mixed),
        loss=F.cross_entropy,
        in_order=True,
    ),
    "a batch that is centred": Case(
        model=Named, data=lambda: DataLoader(Augmented(), BATCH, collate_fn=centred), in_order=True
    ),
    "a batch that is padded": Case(
        model=Lengths, data=lambda: DataLoader(Augmented(), BATCH, collate_fn=padded), in_order=True
    ),
    "blocks left out by one number": Case(model=Skips),
    "blocks left out by one number, sharded": Case("fsdp:2", model=Skips),
    "an output that is an object": Case(model=Unused),
    "an output in an output": Case(model=Nested),
    "a reentrant checkpoint": Case(model=Reentrant),
    "a row that batch norm refuses": Case(model=Normed, data=few, batch_size=3),
    "a row that batch norm refuses, sharded": Case("fsdp:2", Normed, few, batch_size=3),
}


DRAWS = {
    name: Case(model=functools.partial(Records, draw))
    for name, draw in (("torch", torch.rand), ("numpy", by_numpy), ("random", by_python))
}
"""Forwards that draw for each row."""
LATE = Case(data=lambda: DataLoader(Unexpected("random", "own"), BATCH))
"""Samples of the first two batches draw nothing."""
HALF = {
    "half precision, a known sum": Case(
        loss=functools.partial(F.cross_entropy, reduction="sum"), settings={"modes": "fp16"}
    ),
    "half precision, a sum of one's own": Case(
        loss=Inside(reduction="sum"), settings={"modes": "fp16"}
    ),
}
"""Their scaled gradients are almost too large: had ranks' been multiplied, they would overflow."""
EVERY = {**CASES, **DRAWS, "late": LATE, **HALF}


@pytest.fixture(scope="module")
def by_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """Every case, trained by two ranks from the first step on, and brought back."""
    return trained(EVERY, tmp_path_factory.mktemp("by_ranks"))


@pytest.mark.parametrize("name", CASES)
def test_ranks_train_as_a_plain_loop(name: str, by_ranks: dict[str, Trained]) -> None:
    alone, ranks = plain_loop(CASES[name]), by_ranks[name]
    here = random.random(), float(np.random.rand()), float(torch.rand(()))
    assert ranks.losses == pytest.approx(alone.losses, rel=1e-6, abs=1e-7)
    assert ranks.draws == here, "generators come back as the loop leaves them"
    plain = dict(alone.model.named_parameters())
    for path, ours in ranks.experiment.model.named_parameters():
        torch.testing.assert_close(ours, plain[path], rtol=1e-5, atol=1e-6, msg=path)


@pytest.mark.parametrize("name", DRAWS)
def test_no_two_ranks_draw_the_same_for_their_rows(name: str, by_ranks: dict[str, Trained]) -> None:
    trained = by_ranks[name]
    rows: Any = trained.experiment.model.drawn
    drawn = rows[rows > 0].tolist()
    assert len(set(drawn)) == len(drawn) > BATCH / 2
    assert any("draws more random numbers for more samples" in note for note in trained.notes)


def test_samples_that_begin_to_draw_are_reported(by_ranks: dict[str, Trained]) -> None:
    (note,) = (one for one in by_ranks["late"].notes if "random numbers" in one)
    assert note.startswith("samples draw random numbers in step 3, and did not in the first batch")


@pytest.mark.parametrize("name", HALF)
def test_gradients_in_half_precision_overflow_no_earlier_than_in_one_process(
    name: str, by_ranks: dict[str, Trained], tmp_path: Path
) -> None:
    """A rank rounds the sum over its rows to float16: half of one that overflows may do so later,
    by one halving of the scale for two ranks."""
    alone = experiment(HALF[name], tmp_path)
    alone.run(steps=STEPS, wait=True)
    ours, plain = by_ranks[name].experiment._training.scaler, alone._training.scaler
    assert ours is not None
    assert plain is not None
    assert plain.num_skipped - 1 <= ours.num_skipped <= plain.num_skipped
    assert ours.scale == plain.scale * 2 ** (plain.num_skipped - ours.num_skipped)


def test_what_costs_or_differs_is_noted(by_ranks: dict[str, Trained]) -> None:
    for name, words in {
        "a reentrant checkpoint": "use_reentrant=True",
        "a penalty on weights": "the loss takes never.weight of the model",
        "a row that batch norm refuses": "batches of 3 are computed by 1 of 2 ranks",
        "samples that draw from own": "every rank makes the whole batch",
        "a batch that is padded": "collate_fn may give a sample other values",
    }.items():
        assert any(words in note for note in by_ranks[name].notes), name
    assert by_ranks["a function"].notes == []
