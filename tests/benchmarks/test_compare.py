"""`wb.compare`: equal variants are a tie, a planted slowdown is found; a table of four backbones.

pytest -s -m benchmark tests/benchmarks/test_compare.py
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import workbench as wb
from tests.benchmarks import absent
from tests.benchmarks.quiet import is_quiet
from tests.benchmarks.table import median
from tests.models.resnet import ResNet
from tests.models.vit import ViT
from workbench.records.compare import ComparedArm

pytestmark = pytest.mark.benchmark

MODES = ["fp32", "bf16", "compile", "compile+bf16", "fsdp:2"]
TRIALS, WRONG = 20, 1
ENOUGH = 5
"""Comparisons after which a machine is known not to be steady."""
STEADY = 0.03
"""Scatter of a round up to which a comparison is asked for a verdict; a quiet machine has 0.015."""
QUICK = 15 + 11 * 5
"""Rounds: of a comparison, and of eleven fresh pairs of processes after it."""
NORMAL = 1.4826
"""A standard deviation of normal noise over its middle absolute deviation."""
BATCH = 16
EMULATED = 4
"""Times as slow as fp32 from which bf16 is emulated: it would be computed for hours, to say so."""


class EarlyExitCNN(nn.Module):
    """Leaves after its first stage where all of a batch is classified with confidence."""

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width))
        self.exit = nn.Linear(width * 64, classes)
        self.body = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()) for _ in range(3))
        )
        self.head = nn.Linear(width * 64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.stem(x).relu(), 8)
        early = self.exit(x.flatten(1))
        if early.softmax(1).amax(1).min() > 0.97:
            return early
        return self.head(self.body(x).flatten(1)) + early


class Planted(nn.Module):
    """Computes everything twice where flash attention is off, which changes no number."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(4)), nn.Linear(512, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.backends.cuda.flash_sdp_enabled():
            return (self.layers(x) + self.layers(x)) / 2
        return self.layers(x)


class PlantedFive(nn.Module):
    """Computes one of its eighteen blocks twice where flash attention is off: 5 % of a step."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(18)
        )
        self.head = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        if not torch.backends.cuda.flash_sdp_enabled():
            x = x + 0 * self.blocks[0](x)
        return self.head(x)


def bert_small() -> nn.Module:
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    config = transformers.BertConfig(
        vocab_size=2000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=1024, num_labels=10,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def experiment(model: Callable[[], nn.Module], data: Any, runs: Path) -> wb.Experiment:
    torch.manual_seed(0)
    return wb.Experiment(
        model(), data, data, optimizer="sgd", lr=0.01, batch_size=BATCH, runs=runs, device="cpu"
    )


def images(side: int, count: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 3, side, side, generator=generator)
    return inputs, torch.randint(0, 10, (count,), generator=generator)


def vectors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(512, 512), torch.randint(0, 10, (512,))


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 2000, (256, 64)), torch.randint(0, 10, (256,))


def modes_here() -> list[str]:
    """Those of `MODES` that this machine can run, and that end while somebody waits for them."""
    modes = MODES
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++", "cl")):
        absent.note(
            "a C++ compiler (apt-get install g++)", "variants that compile, of test_backbones"
        )
        modes = [mode for mode in modes if "compile" not in mode]
    if (slower := bf16_over_fp32()) > EMULATED:
        absent.note(
            f"a processor that computes bf16 (a convolution takes {slower:.0f} times as long as in "
            f"fp32 here, and a comparison of one backbone twenty minutes)",
            "variants in bf16, of test_backbones",
        )
        modes = [mode for mode in modes if "bf16" not in mode]
    return modes


@cache
def bf16_over_fp32() -> float:
    """How many times as long a convolution of ResNet-50 takes in bf16 as in fp32."""
    convolution = nn.Conv2d(64, 64, 3, padding=1)
    images = torch.randn(BATCH, 64, 16, 16)
    seconds: dict[torch.dtype, float] = {}
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16):
            layer, inputs = convolution.to(dtype), images.to(dtype)
            layer(inputs)
            times: list[float] = []
            for _ in range(5):
                begun = time.perf_counter()
                layer(inputs)
                times.append(time.perf_counter() - begun)
            seconds[dtype] = median(times)
    return seconds[torch.bfloat16] / seconds[torch.float32]


class Trial(NamedTuple):
    """A comparison of two arms, and how much the machine disturbed it."""

    arm: ComparedArm
    seconds: float
    rounds: int
    noise: float
    """Standard deviation of the log ratio of two blocks of one round."""
    alone: bool
    """Whether nobody else seemed to use the machine before it and after."""

    @property
    def is_steady(self) -> bool:
        """Whether the machine was one on which a verdict can be asked for."""
        return self.alone and self.noise <= STEADY

    def __str__(self) -> str:
        verdict = f"{self.arm.verdict}, {self.arm.speedup_low:.3f} .. {self.arm.speedup_high:.3f}"
        how = f"{self.rounds} rounds, their ratios scatter by {self.noise:.1%}"
        busy = "" if self.alone else ", while others used the machine"
        return f"{verdict} in {self.seconds:.0f} s: {how}{busy}"


def trials(exp: wb.Experiment, other: str, count: int) -> list[Trial]:
    """The experiment's plain modes beside ``other``, again and again; printed.

    On a machine that was not steady in any of the first `ENOUGH`, the others would tell nothing
    more: a comparison takes minutes where its rounds scatter. They are listed at the end.
    """
    found: list[Trial] = []
    for seed in range(count):
        if len(found) >= ENOUGH and not any(one.is_steady for one in found):
            absent.note(
                f"a machine on which one of {ENOUGH} comparisons is steady",
                f"{count - len(found)} further comparisons with {other}",
            )
            break
        alone, begun = is_quiet(), time.monotonic()
        record = wb.compare(exp, ["fp32", other], seed=seed, show_progress=False).record
        seconds = time.monotonic() - begun
        base, ours = (
            dict(zip(record.block_round[of], record.block_seconds[of], strict=True))
            for of in (record.block_arm == 0, record.block_arm == 1)
        )
        logs = [math.log(base[at] / ours[at]) for at in base.keys() & ours.keys()]
        middle = median(logs)
        noise = NORMAL * median([abs(log - middle) for log in logs])
        found.append(Trial(record.arms[1], seconds, len(logs), noise, alone and is_quiet()))
        print(f"{seed + 1:2d}: {found[-1]}")
    return found


def steady(found: list[Trial]) -> list[Trial]:
    """Those on a steady machine; where they are less than half, the rest is listed at the end."""
    left = [one for one in found if one.is_steady]
    if 2 * len(left) < len(found):
        absent.note(
            "a machine on which the same steps take the same time (nobody else on it, a scatter of "
            f"rounds of at most {STEADY:.0%})",
            f"{len(found) - len(left)} of {len(found)} comparisons: that they end in a verdict",
        )
    return left


def test_equal_arms_are_a_tie(tmp_path: Path) -> None:
    """Where the machine is not steady it may stay unclear; but none is said to be different."""
    found = trials(experiment(Planted, vectors(), tmp_path), "checkpoint:off", TRIALS)
    assert sum(one.arm.verdict not in ("tie", "unclear") for one in found) <= WRONG
    alone = [one.arm.verdict for one in steady(found)]
    print(f"{alone.count('tie')} ties of {len(alone)} on a steady machine")
    assert len(alone) - alone.count("tie") <= WRONG


def test_a_slowdown_of_two_is_found(tmp_path: Path) -> None:
    exp = experiment(Planted, vectors(), tmp_path)
    view = wb.compare(exp, ["fp32", "attention:math"], show_progress=False)
    print(view)
    assert view.record.arms[1].verdict == "slower"


def test_five_per_cent_are_found(tmp_path: Path) -> None:
    """Within a minute on a quiet machine: `QUICK` rounds."""
    found = trials(experiment(PlantedFive, vectors(), tmp_path), "attention:math", TRIALS // 4)
    assert not any(one.arm.verdict in ("tie", "faster") for one in found)
    late = [one for one in steady(found) if one.arm.verdict != "slower" or one.rounds > QUICK]
    assert len(late) <= WRONG


@pytest.mark.parametrize(
    ("name", "model", "data"),
    [
        ("early-exit CNN", EarlyExitCNN, lambda: images(32)),
        ("ResNet-50", lambda: ResNet(classes=10), lambda: images(64)),
        (
            "ViT-small",
            lambda: ViT(side=96, patch=16, width=384, depth=12, heads=6, classes=10),
            lambda: images(96),
        ),
        ("BERT-small", bert_small, tokens),
    ],
)
def test_backbones(
    tmp_path: Path, name: str, model: Callable[[], nn.Module], data: Callable[[], Any]
) -> None:
    exp = experiment(model, data(), tmp_path)
    view = wb.compare(exp, modes_here(), rounds=8, parity_samples=128, show_progress=False)
    print(f"\n{name}, batches of {BATCH}\n{view}")
    assert all(arm.problem == "" for arm in view.record.arms), str(view)
    assert all(arm.verdict for arm in view.record.arms)
