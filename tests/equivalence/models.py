"""Models of a recipe: small, and each with something that a training loop can get wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

WIDTH, CLASSES, LENGTH, VOCABULARY = 6, 4, 5, 11


class LowRank(nn.Linear):
    """A frozen weight and a product of two small ones, merged in eval mode as LoRA layers do."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__(width, out)
        self.weight.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(2, width) * 0.1)
        self.b = nn.Parameter(torch.randn(out, 2) * 0.1)
        self.merged = False

    def train(self, mode: bool = True) -> LowRank:
        super().train(mode)
        if self.merged == mode:
            with torch.no_grad():
                self.weight += (-1 if mode else 1) * (self.b @ self.a)
            self.merged = not mode
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, self.weight, self.bias)
        return y if self.merged else y + x @ self.a.t() @ self.b.t()


class Keeps(nn.Module):
    """Writes a buffer in place, puts another one in its place, counts, and keeps a plain tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.calls = 0
        self.last = torch.zeros(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inner(x).relu()
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)
                self.last.copy_(h[0])
            self.seen = self.seen + 1
            self.calls += 1
        return self.head(h - self.mean - 0.1 * self.last + 0.01 * self.calls / (1 + self.seen))


class Branches(nn.Module):
    """Takes one of two ways, by the data; the other has no gradient then."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x) if float(x.detach().nan_to_num().mean()) > 0 else self.two(x)


class Complex(nn.Module):
    """Turns pairs of features by a complex weight.

    Without a Fourier transform: MKL's gives other last bits on another thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH // 2, dtype=torch.complex64) * 0.5)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().unflatten(1, (-1, 2)).contiguous())
        return self.head(torch.view_as_real(pairs * self.weight).flatten(1))


class Tied(nn.Module):
    """One weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.two.weight = self.one.weight
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.two(self.one(x).tanh()).tanh())


class Words(nn.Module):
    """A table of embeddings, with dense or sparse gradients."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 8, sparse=sparse)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(tokens).mean(1))


class Recurrent(nn.Module):
    """A GRU with dropout between its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 6)
        self.gru = nn.GRU(6, 6, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.table(tokens))[0][:, -1])


class Attends(nn.Module):
    """A layer of a transformer, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.table(tokens)).mean(1))


def _dense(*inside: nn.Module, width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 8), *inside, nn.ReLU(), nn.Linear(width, CLASSES))


def _half_frozen() -> nn.Module:
    model = _dense(nn.BatchNorm1d(8))
    model[0].requires_grad_(False)  # type: ignore[index]
    model[1].eval()  # type: ignore[index]
    return model


def _lazy() -> nn.Module:
    model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(CLASSES))
    model(torch.zeros(2, WIDTH))
    return model


def _convolution(norm: nn.Module, drop: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(1, 4, 3, padding=1), norm, nn.ReLU(), drop, nn.Flatten(),
        nn.Linear(4 * WIDTH, CLASSES),
    )  # fmt: skip


@dataclass(frozen=True)
class Model:
    """How to make one, and what it takes."""

    make: Callable[[], nn.Module]
    inputs: str = "dense"
    """``dense`` [width], ``signal`` [1, width] or ``tokens`` [length]"""
    is_sparse: bool = False
    is_complex: bool = False
    precisions: tuple[str, ...] = ("", "bf16", "fp16")


MODELS: dict[str, Model] = {
    "perceptron": Model(_dense),
    "batch norm": Model(lambda: _dense(nn.BatchNorm1d(8))),
    "batch norm without statistics": Model(
        lambda: _dense(nn.BatchNorm1d(8, track_running_stats=False))
    ),
    "layer norm": Model(lambda: _dense(nn.LayerNorm(8))),
    "rms norm": Model(lambda: _dense(nn.RMSNorm(8))),
    "group norm": Model(lambda: _convolution(nn.GroupNorm(2, 4), nn.Identity()), "signal"),
    "instance norm": Model(
        lambda: _convolution(nn.InstanceNorm1d(4, track_running_stats=True), nn.Identity()),
        "signal",
    ),
    "dropout": Model(lambda: _dense(nn.Dropout(0.3))),
    "alpha dropout": Model(lambda: _dense(nn.AlphaDropout(0.3))),
    "channel dropout": Model(lambda: _convolution(nn.BatchNorm1d(4), nn.Dropout1d(0.3)), "signal"),
    "random relu": Model(lambda: _dense(nn.RReLU())),
    "low rank": Model(
        lambda: nn.Sequential(LowRank(WIDTH, 8), nn.ReLU(), nn.Dropout(0.2), LowRank(8, CLASSES))
    ),
    "weight norm": Model(
        lambda: nn.Sequential(
            parametrizations.weight_norm(nn.Linear(WIDTH, 8)), nn.ReLU(), nn.Linear(8, CLASSES)
        )
    ),
    "spectral norm": Model(
        lambda: nn.Sequential(
            parametrizations.spectral_norm(nn.Linear(WIDTH, 8)), nn.ReLU(), nn.Linear(8, CLASSES)
        )
    ),
    "orthogonal": Model(
        lambda: nn.Sequential(
            parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH)), nn.Linear(WIDTH, CLASSES)
        ),
        precisions=("",),
    ),
    "tied": Model(Tied),
    "half frozen": Model(_half_frozen),
    "lazy": Model(_lazy),
    "state of its own": Model(Keeps),
    "branches": Model(Branches),
    "complex": Model(Complex, is_complex=True, precisions=("", "bf16")),
    "float64": Model(lambda: _dense().double(), precisions=("",)),
    "embedding": Model(lambda: Words(sparse=False), "tokens"),
    "sparse embedding": Model(
        lambda: Words(sparse=True), "tokens", is_sparse=True, precisions=("", "bf16")
    ),
    "recurrent": Model(Recurrent, "tokens"),
    "transformer layer": Model(Attends, "tokens"),
}
