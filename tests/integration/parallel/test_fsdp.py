"""What FSDP does not support is right under ``fsdp`` all the same: weights of a plain loop.

Every case is a model, a loss or an optimizer that torch's `fully_shard` refuses, or gets silently
wrong, when it is used by itself. The judge is a loop over the whole batches in this process.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.integration.parallel.support import CLASSES, SAMPLES, Net, made, prepare, rows
from workbench.experiment import Experiment, RunError
from workbench.parallel.exchange.files import Folder
from workbench.parallel.exchange.stream import Follower
from workbench.parallel.launch.worker_processes import Workers
from workbench.parallel.transfer.checkpoint import load
from workbench.parallel.transfer.job_pickle import PackingError

STEPS, BATCH = 8, 16
Parameters = Iterable[nn.Parameter]


# -- models ---------------------------------------------------------------------------------


class Momentum(Net):
    """A teacher that follows the student in ``forward`` (MoCo, BYOL, data2vec)."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = copy.deepcopy(self.blocks)
        self.teacher.requires_grad_(False)

    @torch.no_grad()
    def follow(self) -> None:
        for mine, theirs in zip(self.teacher.parameters(), self.blocks.parameters(), strict=True):
            mine.mul_(0.9).add_(theirs, alpha=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.follow()
        x = other = self.stem(x)
        for block, teacher in zip(self.blocks, self.teacher, strict=True):
            x, other = block(x), teacher(other)
        return self.head(x + 0.5 * other)


class ByData(Momentum):
    """As it is often written, past torch's count of writes, and with other memory."""

    def follow(self) -> None:
        for mine, theirs in zip(self.teacher.parameters(), self.blocks.parameters(), strict=True):
            mine.data = mine.data * 0.9 + theirs.data * 0.1


class MaxNorm(Net):
    """Bounds its own trained weights before they are used."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.head.weight.div_(self.head.weight.norm(dim=1, keepdim=True).clamp(min=0.2) / 0.2)
        return super().forward(x)


class PastForward(Net):
    """Calls a method of a block, past its ``forward``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block.down(torch.relu(block.up(x)))
        return self.head(x)


class Held(Net):
    """Has its parameters in a list as well, in the order in which it penalises them."""

    def __init__(self) -> None:
        super().__init__()
        self.penalised = [self.head.weight, self.blocks[0].up.weight]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (1 + 0.01 * sum(w.square().mean() for w in self.penalised))


class Types(Net):
    """Trained float32, float64 and bfloat16 in one block, complex numbers, a frozen integer."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(16, 16, dtype=torch.float64)
        self.small = nn.Parameter(torch.zeros(16, dtype=torch.bfloat16))
        self.phase = nn.Parameter(torch.randn(16, dtype=torch.complex64))
        self.shift = nn.Parameter(torch.ones(16, dtype=torch.int64), requires_grad=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.ones(16, dtype=torch.bool))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.count += 1
        x = self.wide(x.double()).float() + self.small.float() * 0.1
        x = (torch.fft.fft(x) * self.phase).real * self.mask * self.shift
        return super().forward(x)


class Pixels(nn.Module):
    """All of its weights but those of the head are in channels-last memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(4, 6, 2), nn.Linear(6, CLASSES)
        self.norm = nn.BatchNorm2d(6).eval()
        self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x.view(-1, 4, 2, 2).contiguous(memory_format=torch.channels_last))
        return self.head(x.mean((2, 3)))


class Tied(Net):
    """Blocks share a weight with each other and with a layer; one block is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks[1].up.weight = self.blocks[0].up.weight
        self.out = nn.Linear(64, 32, bias=False)
        self.out.weight = self.blocks[2].down.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in (*self.blocks, self.blocks[1]):
            x = block(x)
        return self.head(self.out(torch.cat([x, -x], 1)))


class Frozen(Net):
    """Frozen and trained parameters in one block, and a block that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        for block in self.blocks:
            block.up.weight.requires_grad_(False)
        self.blocks[1].requires_grad_(False)


class Attention(nn.Module):
    """Layers that read weights of the layers in them, past their ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.lstm, self.head = nn.LSTM(16, 16, batch_first=True), nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.stack([x, x.roll(1, 1), -x], 1)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.lstm(self.encoder(x))[0].mean(1))


class Twice(Net):
    """Two forwards of its blocks before one backward, which computes them again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []
        for value in (x, x.flip(1)):
            value = self.stem(value)  # noqa: PLW2901
            for block in self.blocks:
                value = checkpoint(block, value, use_reentrant=False)  # noqa: PLW2901
            found.append(value)
        return self.head(found[0] - found[1])


class Spike(Net):
    """The gradient of its last element, which rank 1 has, is too large for a scaled loss."""

    def __init__(self) -> None:
        super().__init__()
        self.spike = nn.Parameter(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.zeros(CLASSES)
        first[0] = 1e36
        return super().forward(x) + first * self.spike[-1]


# -- losses ---------------------------------------------------------------------------------


class Penalty(nn.Module):
    """Reads the model's parameters after its forward; by their names, or as they were listed."""

    def __init__(self, model: nn.Module, *, listed: bool = False) -> None:
        super().__init__()
        self.model = (model,)
        self.listed = list(model.parameters()) if listed else None

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        parameters = self.model[0].parameters() if self.listed is None else self.listed
        return F.cross_entropy(logits, targets) + 0.01 * sum(p.pow(2).sum() for p in parameters)


class TwoViews(nn.Module):
    """Calls the model once more, on outputs of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = (model,)

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        again = self.model[0](F.pad(logits, (0, 16 - CLASSES)))
        return F.cross_entropy(logits, targets) + 0.1 * F.cross_entropy(again, targets)


# -- optimizers -----------------------------------------------------------------------------


class Lamb(torch.optim.Optimizer):
    """Adam's direction, as long as the parameter is: with a norm as a number, as many have it."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                kept = self.state[p]
                if not kept:
                    kept["mean"], kept["square"] = torch.zeros_like(p), torch.zeros_like(p)
                kept["mean"].lerp_(p.grad, 0.1)
                kept["square"].lerp_(p.grad.square(), 0.01)
                update = kept["mean"] / (kept["square"].sqrt() + 1e-6)
                ratio = p.norm().item() / (update.norm().item() + 1e-6)
                p.add_(update, alpha=-group["lr"] * min(ratio, 10.0))


class Clips(torch.optim.SGD):
    """Bounds the gradients of all parameters together inside of its step."""

    def step(self, closure: Any = None) -> None:
        parameters = [p for group in self.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(parameters, 0.1)
        super().step()


class Sparse(torch.optim.SGD):
    """Element by element, but by functions that torch lacks for tensors sharded over ranks."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    large = p.grad.abs() > 1e-3
                    p[large] -= group["lr"] * p.grad[large]


class Noisy(torch.optim.SGD):
    """Adds noise to its gradients, as Langevin dynamics does."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.grad += 0.01 * torch.randn_like(p.grad)
        super().step()


def muon(parameters: Parameters) -> torch.optim.Optimizer:
    """Of all matrices; by rows it would make each part orthogonal."""
    return torch.optim.Muon([p for p in parameters if p.ndim == 2], lr=0.02)


def groups(parameters: Parameters) -> torch.optim.Optimizer:
    ordered = list(parameters)
    matrices = [p for p in ordered if p.ndim > 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": 0.1},
            {"params": [p for p in ordered if p.ndim < 2], "weight_decay": 0.0, "lr": 0.02},
        ],
        lr=0.01,
        foreach=True,
    )


def sgd(parameters: Parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


# -- cases ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    note: str = ""
    """A part of what the run says of it; nothing is said otherwise."""
    model: Callable[[], nn.Module] = Net
    optimizer: Callable[[Parameters], torch.optim.Optimizer] = sgd
    loss: Callable[[nn.Module], Any] = lambda _: F.cross_entropy
    layout: str = "fsdp:2"
    clip: float | None = None
    modes: str = ""
    in_halves: bool = False
    """Whether the plain loop adds up each batch as two ranks do: Muon computes in bfloat16, and one
    rounding of a float32 more moves its weights by 6e-3 in eight steps."""

    def parts(self) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        torch.manual_seed(0)
        model = self.model()
        return model, self.optimizer(model.parameters()), self.loss(model)

    def experiment(self, runs: Path) -> Experiment:
        model, optimizer, loss = self.parts()
        return made(
            runs, lambda: model, optimizer=optimizer, loss=loss, shuffle=False, val=rows(),
            clip_grad_norm=self.clip, modes=self.modes,
        )  # fmt: skip

    def plain(self) -> tuple[nn.Module, list[float]]:
        """The model and its gradient norms after a plain loop."""
        model, optimizer, loss = self.parts()
        inputs, targets = rows()
        torch.manual_seed(0)  # as a run is seeded
        norms: list[float] = []
        for first in range(0, STEPS * BATCH, BATCH):
            model.train()
            optimizer.zero_grad()
            parts = 2 if self.in_halves else 1
            for x, y in zip(
                inputs[first : first + BATCH].chunk(parts),
                targets[first : first + BATCH].chunk(parts),
                strict=True,
            ):
                (loss(model(x), y) / parts).backward()
            if self.clip is not None:
                norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), self.clip)))
            optimizer.step()
        return model, norms


WRITTEN, AT_ONCE = "written in forward", "all parameters are gathered at once"
GATHERED = "gathered for the step of"
CASES = {
    "a momentum teacher": Case(WRITTEN, Momentum),
    "a momentum teacher by data": Case(WRITTEN, ByData),
    "weights bounded in forward": Case(WRITTEN, MaxNorm),
    "a block past its forward": Case(AT_ONCE, PastForward),
    "parameters in a list": Case("used in another way", Held),
    "several types": Case("of another dtype", Types),
    "channels last": Case("not contiguous", Pixels),
    "tied": Case("shared with another", Tied),
    "frozen": Case("", Frozen),
    "attention and LSTM": Case("", Attention),
    "two forwards, computed again": Case("", Twice),
    "a penalty": Case(AT_ONCE, loss=Penalty),
    "a penalty, listed": Case(
        "used in another way", loss=lambda model: Penalty(model, listed=True)
    ),
    "the model in the loss": Case("", loss=TwoViews),
    "LAMB": Case(GATHERED, optimizer=Lamb, clip=0.05),
    "a clip in a step": Case(GATHERED, optimizer=lambda p: Clips(p, lr=1.0)),
    "Adafactor": Case(GATHERED, optimizer=lambda p: torch.optim.Adafactor(p, lr=0.05)),
    "Muon": Case(GATHERED, optimizer=muon, in_halves=True),
    "noise": Case(GATHERED, optimizer=lambda p: Noisy(p, lr=0.1)),
    "noise of ddp": Case("", optimizer=lambda p: Noisy(p, lr=0.1), layout="ddp:2"),
    "by a mask": Case(GATHERED, optimizer=lambda p: Sparse(p, lr=0.1)),
    "LAMB of tied, clipped": Case(GATHERED, Tied, Lamb, clip=0.05),
    "groups, clipped": Case("", optimizer=groups, clip=0.05),
    "types, clipped": Case("of another dtype", Types, clip=0.05),
    "RMSprop, fused AdamW": Case("", optimizer=lambda p: torch.optim.AdamW(p, fused=True)),
    "a teacher, blocks kept": Case(WRITTEN, Momentum, layout="fsdp:2,keep"),
    "LAMB of two replicas": Case(GATHERED, optimizer=Lamb, layout="fsdp:2,hsdp=2"),
}

OVERFLOWS = {
    layout: Case(model=Spike, layout=layout, modes="fp16", optimizer=optimizer)
    for layout, optimizer in (
        ("fsdp:2", sgd), ("fsdp:2,keep", Lamb), ("fsdp:2,hsdp=2", sgd), ("ddp:2", sgd)
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Experiment, Folder]]:
    """Every case, brought back after its steps on two ranks."""
    root = tmp_path_factory.mktemp("remote")
    found: dict[str, tuple[Experiment, Folder]] = {}
    for number, (name, case) in enumerate((CASES | OVERFLOWS).items()):
        experiment, folder = case.experiment(root / "runs"), Folder(root / f"{number:02}")
        experiment._training.begin()
        experiment._training.end()
        prepare(experiment, folder, case.layout, STEPS)
        found[name] = experiment, folder
    workers = Workers(Folder(root), 2, module="tests.integration.parallel.several")
    try:
        assert workers.wait(600) == 0, (root / "log.txt").read_text()[-5000:]
    finally:
        workers.end()
    for experiment, folder in found.values():
        load(experiment._training, folder.last)
    return found


@pytest.mark.parametrize("name", CASES)
def test_weights_are_those_of_a_plain_loop(
    name: str, homes: dict[str, tuple[Experiment, Folder]]
) -> None:
    assert STEPS * BATCH < SAMPLES
    case, (experiment, folder) = CASES[name], homes[name]
    plain, norms = case.plain()
    theirs = dict(plain.named_parameters())
    for path, ours in experiment.model.named_parameters():
        atol = 1e-3 if ours.dtype is torch.bfloat16 else 1e-6
        torch.testing.assert_close(ours, theirs[path], rtol=1e-5, atol=atol, msg=path)
    for path, ours in experiment.model.named_buffers():
        torch.testing.assert_close(ours, dict(plain.named_buffers())[path], msg=path)
    messages = list(Follower(folder.events).new())
    notes: list[str] = [note for message in messages for note in message.get("notes", ())]
    assert bool(notes) is bool(case.note)
    assert case.note in "; ".join(notes)
    if norms:
        series = [
            one for message in messages if message["type"] == "scalars" for one in message["series"]
        ]
        ours = [v for one in series if one[0] == "train/gradient_norm" for v in one[2]]
        assert ours == pytest.approx(norms, rel=1e-5)


@pytest.mark.parametrize("layout", OVERFLOWS)
def test_an_overflow_is_named(layout: str, homes: dict[str, tuple[Experiment, Folder]]) -> None:
    scaler = homes[layout][0]._training.scaler
    assert scaler is not None
    assert 0 < scaler.num_skipped < STEPS
    assert scaler.first is not None
    assert scaler.last is not None
    assert (scaler.first.parameter, scaler.last.parameter) == ("spike", "spike")


class Late(Net):
    """Begins to write a weight in its sixth call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += self.training
        if self.seen > 5:
            with torch.no_grad():
                self.stem.weight.mul_(0.99)
        return super().forward(x)


@pytest.mark.usefixtures("forked_ranks")
def test_a_write_that_begins_late_is_not_lost_in_silence(tmp_path: Path) -> None:
    experiment = made(tmp_path, Late, modes="fsdp:2")
    with pytest.raises(RunError, match=r"stem\.weight is written in forward in this step"):
        experiment.run(steps=20).wait(600)
    assert experiment.step_count == 0


class Root(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1, keepdim=True).sqrt()


class Roots(Net):
    """Its root of what is negative is not a number, in rows of rank 1."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Root()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.root(x)


@pytest.mark.usefixtures("forked_ranks")
def test_what_is_not_finite_is_reported_as_in_one_process(tmp_path: Path) -> None:
    """And the run has the notes of its ranks."""
    inputs, targets = rows()
    inputs = inputs.abs()
    inputs[3 * BATCH - 1] *= -1
    ends: list[Any] = []
    for modes in ("", "fsdp:2"):
        torch.manual_seed(0)
        model = Roots()
        experiment = made(
            tmp_path, lambda model=model: model, (inputs, targets), modes=modes, shuffle=False,
            optimizer=Lamb(model.parameters()),
        )  # fmt: skip
        with pytest.raises(RunError):
            experiment.run(steps=8).wait(600)
        failure = experiment.failure
        assert failure is not None
        ends.append((experiment.status, experiment.step_count, failure))
    assert ends[0] == ends[1]
    assert ends[0][:2] == ("nan", 2)
    assert any(GATHERED in note for note in experiment._training.board.notes)


def test_what_cannot_be_gathered_in_16_bits_is_refused_before_a_process_starts(
    tmp_path: Path,
) -> None:
    experiment = made(tmp_path, Pixels, modes="fsdp:2,bf16")
    with pytest.raises(
        PackingError, match=r"conv\.weight cannot be gathered: it is not contiguous"
    ):
        experiment.run(steps=1, wait=True)
    assert not list((experiment.path / "parallel").glob("*"))
