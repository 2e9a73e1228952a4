"""Models of a recipe that goes to ranks: all of `tests.equivalence.models`, and what travels badly.

Each says what ranks see of it that one process does not (`Seen`): a judge has to know that batch
norm sees the rows of a rank, and that dropout on the second rank draws from a stream of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.equivalence import models
from tests.equivalence.models import CLASSES, WIDTH, Attends, LowRank, Model, Recurrent


class Block(nn.Module):
    """A residual block, of which `fsdp` gathers one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x)


class Blocks(nn.Module):
    """Three of them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class PastForward(Blocks):
    """Calls a method of its blocks, which hooks of a forward do not see."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block.run(x)
        return self.head(x)


class Reentrant(Blocks):
    """Computes its blocks again in the backward, as torch did it first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x)


class Anneals(nn.Module):
    """A temperature that falls with a count of its own, and a list of what was counted."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.calls, self.heard = 0, [0]
        self.kept = {"calls": 0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
            self.heard.append(self.calls)
            self.kept["calls"] = self.calls
        return self.head(self.inner(x).relu()) / (1 + 0.1 * self.calls)


class Assigns(nn.Module):
    """Puts new tensors in the place of buffers, and counts in types that few things send."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("short", torch.zeros(1, dtype=torch.int16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen = self.seen + 1
            self.short = self.short + 1
        return self.head(self.inner(x).relu()) / (1 + 0.1 * self.seen)


class Counts(nn.Module):
    """Writes into its buffers, one of them of a type that few things send."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.register_buffer("short", torch.zeros(1, dtype=torch.int16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += 1
            self.short += 1
        return self.head(self.inner(x).relu()) / (1 + 0.1 * self.short)


class Teacher(nn.Module):
    """Follows its student's weights in the forward, as self-distillation does."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES)
        self.teacher.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            with torch.no_grad():
                for old, new in zip(
                    self.teacher.parameters(), self.student.parameters(), strict=True
                ):
                    old.mul_(0.9).add_(new, alpha=0.1)
        return self.student(x) + 0.5 * self.teacher(x)


class TiedByData(nn.Module):
    """Two parameters of one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.two.weight.data = self.one.weight.data
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.two(self.one(x).tanh()).tanh())


class Temperature(nn.Module):
    """A parameter that is a number, and one that no step reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.scale, self.spare = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(x).relu()) * self.scale


class ChannelsLast(nn.Module):
    """A convolution whose weights lie in memory as channels-last ones do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Conv2d(2, 4, (1, 3)), nn.Linear(4, CLASSES)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(x.reshape(-1, 2, 1, 3)).flatten(1).relu())


class TwoTypes(nn.Module):
    """A layer in float64 among others."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.inner, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(self.first(x.double()).float()).relu())


class Centred(Blocks):
    """Takes off where its outputs were before, which a buffer follows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(CLASSES))
        self.seen = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        found = x - self.centre
        if self.training:
            self.seen += len(x)
            with torch.no_grad():
                self.centre.mul_(0.9).add_(x.float().mean(0), alpha=0.1)
        return found


class ByNorm(torch.autograd.Function):
    """A gradient of norm one, over the batch."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] / gradients[0].norm().clamp(min=1e-6)


class Normalized(Blocks):
    """Its backward goes by the norm of a whole batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(ByNorm.apply(self.blocks[0](self.stem(x))))


class ByPlace(Blocks):
    """Does to a sample what its place in the batch says, and takes off the mean of all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](self.stem(x))
        return self.head(x * (1 + torch.arange(len(x), device=x.device) % 3)[:, None] - x.mean(0))


def _frozen_body() -> nn.Module:
    body = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
    body.requires_grad_(False).eval()
    return nn.Sequential(body, nn.Linear(8, CLASSES))


def _synchronized() -> nn.Module:
    return nn.SyncBatchNorm.convert_sync_batchnorm(models.MODELS["batch norm"].make())


def _without_dropout(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        model = make()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
                module.dropout = 0.0
        return model

    return made


Seen = Literal["rows", "part", "draws"]


@dataclass(frozen=True)
class RankModel(Model):
    """A model, and what ranks see of it."""

    seen: Seen = "rows"
    """``rows``: of each row by itself, so that the numbers are those of one process. ``part``: of
    the rank's part of a batch, as batch norm does everywhere; the judge computes it part by part.
    ``draws``: it draws numbers, on the second rank from a stream of its own (docs/parallel.md)."""
    keeps: bool = False
    """Whether it keeps what a swap does not carry to a new model."""


_PARTS = ("batch norm",)
_DRAWS = (
    "dropout",
    "alpha dropout",
    "channel dropout",
    "random relu",
    "low rank",
    "recurrent",
    "transformer layer",
)
_KEEPS = ("state of its own", "lazy", "low rank")


def _of(name: str, model: Model) -> RankModel:
    seen: Seen = "part" if name in _PARTS else "draws" if name in _DRAWS else "rows"
    given = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    return RankModel(**given, seen=seen, keeps=name in _KEEPS)


_PLAIN = ("",)

MODELS: dict[str, RankModel] = {
    **{name: _of(name, model) for name, model in models.MODELS.items()},
    "blocks": RankModel(Blocks),
    "a method past forward": RankModel(PastForward),
    "reentrant checkpoint": RankModel(Reentrant, precisions=_PLAIN),
    "anneals": RankModel(Anneals, keeps=True),
    "buffers assigned": RankModel(Assigns, keeps=True),
    "buffers counted": RankModel(Counts, keeps=True),
    "teacher": RankModel(Teacher, keeps=True),
    "tied by data": RankModel(TiedByData, keeps=True),
    "temperature": RankModel(Temperature),
    "channels last": RankModel(ChannelsLast),
    "two float types": RankModel(TwoTypes, precisions=_PLAIN),
    "centred": RankModel(Centred, keeps=True),
    "a backward by the norm": RankModel(Normalized, precisions=_PLAIN),
    "by place": RankModel(ByPlace),
    "frozen body": RankModel(_frozen_body, keeps=True),
    "synchronized batch norm": RankModel(_synchronized, seen="part", precisions=_PLAIN),
    "low rank, no dropout": RankModel(
        _without_dropout(lambda: nn.Sequential(LowRank(WIDTH, 8), nn.ReLU(), LowRank(8, CLASSES))),
        keeps=True,
    ),
    "recurrent, no dropout": RankModel(_without_dropout(Recurrent), "tokens"),
    "transformer layer, no dropout": RankModel(_without_dropout(Attends), "tokens"),
}
"""By name; those that keep something are swapped nowhere."""
