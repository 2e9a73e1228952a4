"""How far 8-bit training layers are from bf16 and from fp32, on real layers and activations.

A small vision transformer and a perceptron are trained a little in fp32, so that weights,
activations and gradients look as they do in training. Then a batch that they have not seen is
computed in each precision from the same weights; printed are relative errors, ``|a - b| / |b|``
over all entries, of the output and of all gradients of weights together, to fp32 and to bf16.

What a format can do follows from its mantissa: e4m3 has 3 bits, so rounding alone is off by up to
2**-4 (6 %) of a value and by some 2.6 % on average; the two operands of a product add up to 3.7 %.
e5m2, with which ``fp8`` rounds gradients, has 2 bits and twice that. Errors of layers in a row add
up. The bounds are about 1.3 times what was measured.

Step times are printed too: where the formats are emulated, they are what emulation costs.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.benchmarks.table import measure_interleaved, median, versions
from tests.models.vit import ViT
from workbench.modes import ModeSet
from workbench.modes.precision.low_precision import low_precision_layers

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(
        importlib.util.find_spec("torchao") is None, reason="needs torchao: pip install torchao"
    ),
]

VALUES = ("fp32", "bf16", "fp8", "fp8-rowwise", "mxfp8")
BOUNDS = {
    "fp32": (0.0, 0.0),
    "bf16": (0.01, 0.01),
    "fp8": (0.12, 0.20),
    "fp8-rowwise": (0.11, 0.10),
    "mxfp8": (0.05, 0.085),
}
"""Largest relative errors against fp32: of the output, of the gradients."""
STEPS, BATCH = 20, 64

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Computed:
    output: torch.Tensor
    gradients: torch.Tensor
    """Of all weights of converted layers, one after the other."""


def transformer() -> tuple[nn.Module, tuple[int, ...]]:
    """Two blocks, width 128, on 16 patches; what is compared are its logits."""
    return ViT(side=16, patch=4, width=128, depth=2, heads=4, classes=16), (3, 16, 16)


def perceptron() -> tuple[nn.Module, tuple[int, ...]]:
    layers = [nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 16)]
    return nn.Sequential(*layers), (256,)


def trained(make: Callable[[], tuple[nn.Module, tuple[int, ...]]]) -> tuple[nn.Module, Batch]:
    """The model after `STEPS` steps, and a batch it has not seen."""
    torch.manual_seed(0)
    model, shape = make()
    teacher = torch.randn(torch.Size(shape).numel(), 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        inputs, labels = _batch(shape, teacher)
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model, _batch(shape, teacher)


def _batch(shape: tuple[int, ...], teacher: torch.Tensor) -> Batch:
    inputs = torch.randn(BATCH, *shape)
    return inputs, (inputs.flatten(1) @ teacher).argmax(1)


def computed(value: str, model: nn.Module, batch: Batch) -> Computed:
    names = [row.path for row in low_precision_layers(model, "mxfp8") if row.converted]
    assert names, "nothing would be compared"
    modes = ModeSet.parse(value, "cpu")
    model.zero_grad()
    modes.attach(model)
    try:
        with modes.forward_context():
            logits = model(batch[0])
            loss = cross_entropy(logits.float(), batch[1])
        modes.backward(loss)
    finally:
        modes.detach(model)
    gradients = [model.get_submodule(name).weight.grad.flatten() for name in names]
    return Computed(logits.detach().float(), torch.cat(gradients))


def apart(found: torch.Tensor, right: torch.Tensor) -> float:
    return float((found - right).norm() / right.norm())


@pytest.mark.parametrize("make", [transformer, perceptron])
def test_errors_are_those_of_the_formats(
    make: Callable[[], tuple[nn.Module, tuple[int, ...]]], one_thread: None
) -> None:
    model, batch = trained(make)
    found = {value: computed(value, model, batch) for value in VALUES}
    errors = {
        (value, against): (
            apart(found[value].output, found[against].output),
            apart(found[value].gradients, found[against].gradients),
        )
        for value in VALUES
        for against in ("fp32", "bf16")
    }
    times = measure_interleaved({value: _timed(value, model, batch) for value in VALUES}, rounds=7)
    print(f"\n{make.__name__}, relative error of output and gradients")
    print(f"{versions('torch', 'torchao')}\n{'':12}{'to fp32':>17}{'to bf16':>17}   a step")
    for value in VALUES:
        cells = "".join(
            f"{error:9.2%}" if part == 0 else f"{error:8.2%}"
            for against in ("fp32", "bf16")
            for part, error in enumerate(errors[value, against])
        )
        print(f"{value:12}{cells}   {median(times[value]) * 1e3:.1f} ms")
    for value, bounds in BOUNDS.items():
        assert all(e <= b for e, b in zip(errors[value, "fp32"], bounds, strict=True)), value
        if value not in ("fp32", "bf16"):
            assert all(e <= b for e, b in zip(errors[value, "bf16"], bounds, strict=True)), value
            assert errors[value, "bf16"][0] > 1e-2, "that would be bf16"


def _timed(value: str, model: nn.Module, batch: Batch) -> Callable[[], float]:
    def timed() -> float:
        started = time.perf_counter()
        computed(value, model, batch)
        return time.perf_counter() - started

    return timed
