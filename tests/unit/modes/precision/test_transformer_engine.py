"""What TransformerEngine has to prove before it is used; it runs on GPUs alone (tests/gpu)."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from workbench.modes.precision.float8 import product
from workbench.modes.precision.transformer_engine import Engine, engine, prove, tried

CPU = torch.device("cpu")
torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao is not installed"
)


def test_it_is_nothing_to_a_cpu() -> None:
    assert engine("fp8", CPU) == Engine()
    assert engine("fp8-rowwise", torch.device("cuda")) == Engine()


@torchao
@pytest.mark.parametrize("value", ["fp8", "mxfp8"])
def test_products_in_8_bits_are_proven(value: str) -> None:
    prove(product(value, native=False), CPU)


def in_16_bits(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(inputs, weight)


def turned(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(inputs, weight.flip(1))


def without_gradient(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    noise = 0.04 * torch.randn(32, 64)
    return torch.nn.functional.linear(inputs, weight.detach() + noise)


@pytest.mark.parametrize(
    ("multiply", "said"),
    [
        (in_16_bits, r"the output of a small product is off by 0\.[1-4]\d%"),
        (turned, r"the output of a small product is off by 1\d\d\.\d\d%"),
        (without_gradient, "a small product has no gradient of the weight"),
    ],
)
def test_what_is_not_in_8_bits_or_wrong_is_refused(
    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], said: str
) -> None:
    torch.manual_seed(0)
    with pytest.raises(RuntimeError, match=said):
        prove(multiply, CPU)


def test_a_broken_installation_is_left_alone_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "transformer_engine"
    package.mkdir()
    (package / "__init__.py").write_text('raise OSError("libcublas.so.12: no such file")')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "transformer_engine", raising=False)
    found = tried("fp8", CPU)
    assert found.version == ""
    assert found.problem == (
        "TransformerEngine is left alone: OSError: libcublas.so.12: no such file."
    )
