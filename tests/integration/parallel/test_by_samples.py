"""Steps that are not the sum over their samples: on ranks they are those of one process.

The judge is a plain loop over the same batches. All train in one start of two ranks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.equivalence.ranks.models import ByNorm
from tests.integration.parallel.one_start import BATCH, Case, Trained, plain_loop, trained
from tests.integration.parallel.support import SAMPLES, Net, made, rows
from workbench.parallel.rank.rank import DRAWS_APART, NORMALISES, UNDIVIDED


class ByCount(ByNorm):
    """Its gradient goes by the number of rows."""

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * len(gradients[0]) / 10


class Stem(nn.Linear):
    """Followed by a change."""

    def __init__(self, change: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__(16, 32)
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.change(self, torch.relu(super().forward(x)))


def with_stem(
    change: Callable[[Any, torch.Tensor], torch.Tensor], **kept: Any
) -> Callable[[], nn.Module]:
    """A net whose stem does it; ``kept``: attributes, buffers where they are tensors."""

    def make() -> nn.Module:
        net = Net()
        net.stem = Stem(change)
        for name, value in kept.items():
            if isinstance(value, torch.Tensor):
                net.stem.register_buffer(name, value.clone())
            else:
                setattr(net.stem, name, copy.copy(value))
        return net

    return make


def clipped(_: Any, x: torch.Tensor) -> torch.Tensor:
    """A hook on an activation, which clips once it is large."""
    x.register_hook(lambda gradient: gradient * min(1.0, 0.01 / float(gradient.norm())))
    return x


def centred(self: Any, x: torch.Tensor) -> torch.Tensor:
    """By where outputs were before, as DINO's are."""
    found = x - self.centre
    with torch.no_grad():
        self.centre = 0.9 * self.centre + 0.1 * x.mean(0)
    return found


def nearest(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A codebook that follows what falls to each of its codes."""
    which = torch.cdist(x, self.codes).argmin(1)
    found = x + (self.codes[which] - x).detach()
    with torch.no_grad():
        chosen = F.one_hot(which, len(self.codes)).float()
        self.counts.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
        self.sums.mul_(0.9).add_(chosen.T @ x, alpha=0.1)
        self.codes.copy_(self.sums / self.counts[:, None].clamp(min=1e-3))
    return found


def counting(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.seen += len(x)
    return x


def by_place(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x * (1 + (torch.arange(len(x)) % 3)[:, None])


def without_mean(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0)


def queued(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Compares with the rows of batches before."""
    before = self.queue.clone()
    found = x + 0.01 * (x @ before.T @ before)
    with torch.no_grad():
        places = (self.at + torch.arange(len(x))) % len(self.queue)
        self.queue[places] = x
        self.at = (self.at + len(x)) % len(self.queue)
    return found


def by_the_last(self: Any, x: torch.Tensor) -> torch.Tensor:
    found, self.last = x + self.last, float(x.detach().mean())
    return found


def followed(self: Any, x: torch.Tensor) -> torch.Tensor:
    """An average that begins with the first batch."""
    mean = x.detach().mean(0)
    self.mean = mean if self.mean is None else 0.9 * self.mean + 0.1 * mean
    return x


def with_term(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.term = x.pow(2).mean() + x.mean(0).var()
    return x


class Term:
    """A loss that reads what the model keeps of its forward."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, labels) + 0.1 * self.model.stem.term


class Features:
    """A loss that reads what a hook of its own has seen."""

    def __init__(self, model: Any) -> None:
        self.seen = torch.zeros(())
        model.stem.register_forward_hook(self.hook)

    def hook(self, _module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        self.seen = output

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, labels) + 0.1 * self.seen.pow(2).mean()


class Cached(Dataset[Any]):
    """What a sample is goes by how many were made before it."""

    def __init__(self) -> None:
        self.inputs, self.targets = rows()
        self.cache: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, row: int) -> Any:
        if row not in self.cache:
            self.cache[row] = self.inputs[row] + 0.01 * len(self.cache)
        return self.cache[row], self.targets[row]


class Harder(Cached):
    def __init__(self) -> None:
        super().__init__()
        self.level = 0.0

    def __getitem__(self, row: int) -> Any:
        self.level += 0.01
        return self.inputs[row] * (1 + self.level), self.targets[row]


class Jittered(Cached):
    """Draws from a generator that it makes for its first sample."""

    rng: np.random.Generator | None = None

    def __getitem__(self, row: int) -> Any:
        if self.rng is None:
            self.rng = np.random.default_rng(3)
        return self.inputs[row] + float(self.rng.normal()), self.targets[row]


def plainly(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x


def kept_to_look_at(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.features, self.level, self.calls = x.detach(), float(x.detach().mean()), self.calls + 1
    return x


def decays(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        self.weight.mul_(0.9)
    return x


def few() -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = rows()
    return inputs[:60], targets[:60]


def normed(norm: nn.Module, make: Callable[[], nn.Module] = Net) -> Callable[[], nn.Module]:
    """A net with ``norm`` behind its stem."""

    def made() -> nn.Module:
        net: Any = make()
        net.stem = nn.Sequential(net.stem, copy.deepcopy(norm))
        return net

    return made


CODES = torch.randn(6, 32, generator=torch.Generator().manual_seed(7))
WHOLE: dict[str, Case] = {
    "a backward by the norm": Case(model=with_stem(lambda _, x: ByNorm.apply(x))),
    "a backward by the norm, sharded": Case("fsdp:2", with_stem(lambda _, x: ByNorm.apply(x))),
    "a backward by the number": Case(model=with_stem(lambda _, x: ByCount.apply(x))),
    "a gradient that is clipped": Case(model=with_stem(clipped)),
    "a centre": Case(model=with_stem(centred, centre=torch.zeros(32))),
    "a centre, sharded": Case("fsdp:2", with_stem(centred, centre=torch.zeros(32))),
    "a codebook": Case(
        "fsdp:2", with_stem(nearest, codes=CODES, sums=CODES, counts=torch.ones(len(CODES)))
    ),
    "samples that are counted": Case(model=with_stem(counting, seen=0)),
    "places": Case(model=with_stem(by_place)),
    "a mean that is taken off": Case("fsdp:2", with_stem(without_mean)),
    "rows before": Case(model=with_stem(queued, queue=CODES.repeat(8, 1), at=0)),
    "the last mean": Case(model=with_stem(by_the_last, last=0.0)),
    "an average from the first on": Case(model=with_stem(followed, mean=None)),
    "a term of the model": Case(model=with_stem(with_term), loss=Term, of_model=True),
    "features of a hook": Case("fsdp:2", with_stem(plainly), loss=Features, of_model=True),
    "two samples": Case(model=with_stem(without_mean), data=few, batch_size=2),
    "batch norm of whole batches": Case(model=normed(nn.BatchNorm1d(32), with_stem(without_mean))),
}
"""Every rank computes whole batches."""
KEEPING: dict[str, Case] = {
    "a cache": Case(data=lambda: DataLoader(Cached(), BATCH, shuffle=True)),
    "a curriculum": Case("fsdp:2", data=lambda: DataLoader(Harder(), BATCH, shuffle=True)),
    "a generator": Case(data=lambda: DataLoader(Jittered(), BATCH, shuffle=True)),
}
DIVIDED: dict[str, Case] = {
    "kept to be looked at": Case(
        model=with_stem(kept_to_look_at, calls=0, level=0.0, features=None)
    ),
    "a weight that decays": Case(model=with_stem(decays)),
    "two samples, alone": Case(data=few, batch_size=2),
}
EVERY = {**WHOLE, **KEEPING, **DIVIDED}
NORMS: dict[str, Case] = {
    "batch norm": Case(model=normed(nn.BatchNorm1d(32))),
    "batch norm, sharded": Case("fsdp:2", normed(nn.BatchNorm1d(32))),
    "batch norm beside dropout": Case(
        model=normed(nn.Sequential(nn.BatchNorm1d(32), nn.Dropout(0.2)))
    ),
    "batch norm of two rows": Case(
        model=normed(nn.Sequential(nn.BatchNorm1d(32), nn.Dropout(0.2))), data=few, batch_size=4
    ),
}
"""The exception: each rank's normalises by its own rows."""


@pytest.fixture(scope="module")
def by_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    return trained({**EVERY, **NORMS}, tmp_path_factory.mktemp("by_ranks"))


@pytest.mark.parametrize("name", EVERY)
def test_ranks_train_as_a_plain_loop(name: str, by_ranks: dict[str, Trained]) -> None:
    alone, ranks = plain_loop(EVERY[name]), by_ranks[name]
    assert ranks.losses == pytest.approx(alone.losses, rel=1e-6, abs=1e-7)
    ours = ranks.experiment.model.state_dict()
    assert list(ours) == list(alone.model.state_dict())
    for path, plain in alone.model.state_dict().items():
        torch.testing.assert_close(ours[path], plain, rtol=1e-5, atol=1e-6, msg=path)


@pytest.mark.parametrize("name", EVERY)
def test_what_ranks_divide_is_said(name: str, by_ranks: dict[str, Trained]) -> None:
    found = [note for note in by_ranks[name].notes if note.endswith(UNDIVIDED)]
    assert len(found) == (name in WHOLE)


@pytest.mark.parametrize("name", {**EVERY, **NORMS})
def test_batch_norm_that_sees_parts_is_said(name: str, by_ranks: dict[str, Trained]) -> None:
    notes = by_ranks[name].notes
    assert (NORMALISES in notes) == (name in NORMS)
    if name == "batch norm of two rows":
        assert DRAWS_APART in notes


def test_numbers_of_modules_come_back(by_ranks: dict[str, Trained]) -> None:
    for name, kept in (
        ("samples that are counted", "seen"),
        ("rows before", "at"),
        ("the last mean", "last"),
        ("an average from the first on", "mean"),
    ):
        models = by_ranks[name].experiment.model, plain_loop(EVERY[name]).model
        ours, plain = (getattr(one.stem, kept) for one in models)
        assert ours == pytest.approx(plain, rel=1e-5), name


def test_what_a_data_set_keeps_comes_back(by_ranks: dict[str, Trained]) -> None:
    homes = {
        name: by_ranks[name].experiment._training.cursor.source.loader.dataset for name in KEEPING
    }
    assert len(homes["a cache"].cache) == SAMPLES
    assert homes["a curriculum"].level == pytest.approx(0.01 * (SAMPLES + BATCH))
    expected = np.random.default_rng(3)
    expected.normal(size=SAMPLES + BATCH)
    assert homes["a generator"].rng.normal() == expected.normal()
    for name, does in (
        ("a cache", "what the data set keeps"),
        ("a curriculum", "what the data set keeps"),
        ("a generator", "samples draw random numbers"),
    ):
        assert any(does in note for note in by_ranks[name].notes), name


class Later(Net):
    """Takes a mean off from its sixth forward on."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        x = self.stem(x)
        if self.calls > 5:
            x = x - x.mean(0)
        return self.head(self.blocks[0](x))


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize("layout", ["ddp:2", "fsdp:2"])
def test_what_begins_later_is_seen_at_its_first_step(layout: str, tmp_path: Path) -> None:
    exp = made(tmp_path, Later, modes=layout)
    exp.step(12).wait()
    alone = made(tmp_path, Later)
    alone.step(12).wait()
    for ours, plain in zip(exp.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)
    assert exp.model.calls == alone.model.calls == 12
    assert any(note.startswith("step 6 goes through operations") for note in exp.notes)
    assert any(note.endswith(UNDIVIDED) for note in exp.notes)
    exp.close()
    alone.close()
