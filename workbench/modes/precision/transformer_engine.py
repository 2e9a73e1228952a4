"""Products in 8 bits by NVIDIA's TransformerEngine, if it is installed and passes a test.

It has the two formats that need no memory of earlier steps: ``fp8`` (its ``Float8CurrentScaling``:
one scale per tensor, e4m3 forward and e5m2 backward) and ``mxfp8`` (``MXFP8BlockScaling``). Its
``Linear`` is used for the product alone: the user's layer keeps its weight, and nothing of
TransformerEngine is in the model, its ``state_dict`` or a pickle of it.

Releases rename and move parts of it (`fp8_autocast` became `autocast`), so nothing is taken for
granted: before it is used, one small product and its two gradients are compared with exact ones. An
engine that fails, or that does not round to 8 bits at all, is not used, and the reason is reported.

Source: ``transformer_engine/pytorch/module/linear.py``, ``quantization.py`` and
``transformer_engine/common/recipe`` of releases 2.4 to 2.20.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import torch

from workbench.modes.core.machine_probes import first_line

_RECIPES = {"fp8": "Float8CurrentScaling", "mxfp8": "MXFP8BlockScaling"}
_ROWS = 32
"""Its kernels need a number of rows that is a multiple of this; rows of zeros change no value."""
_EXACT, _WRONG = 0.01, 0.2
"""Relative errors: that of 16 bits is below the first (0.003), that of 8 bits below the second
(0.04 with three bits of mantissa, 0.08 with two)."""


class Engine(NamedTuple):
    """What TransformerEngine can do for one value on this machine."""

    version: str = ""
    """``2.8.0``; empty if it is not used."""
    problem: str = ""
    """Why it is not used although it is installed, as a sentence."""


@cache
def engine(value: str, device: torch.device) -> Engine:
    """Whether TransformerEngine multiplies for ``value`` on ``device``, which is tried.

    Determined once per process: layers that were converted continue with what they began with.
    """
    if value not in _RECIPES or device.type != "cuda" or torch.version.cuda is None:
        return Engine()
    if importlib.util.find_spec("transformer_engine") is None:
        return Engine()
    return tried(value, device)


def tried(value: str, device: torch.device) -> Engine:
    """Result of trying the TransformerEngine that is installed."""
    try:
        prove(engine_product(value), device)
        return Engine(_version())
    except Exception as error:  # noqa: BLE001 - whatever was installed, of any release
        what = f"TransformerEngine {_version()}".strip()
        kind = type(error).__name__
        return Engine("", f"{what} is left alone: {kind}: {first_line(error)}.")


@cache
def engine_product(value: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The product ``(input [..., K], weight [N, K]) -> [..., N]``; imports TransformerEngine.

    Raises:
        Exception: it cannot be imported, or is a release with another structure.
    """
    te: Any = importlib.import_module("transformer_engine.pytorch")
    recipes: Any = importlib.import_module("transformer_engine.common.recipe")
    recipe = getattr(recipes, _RECIPES[value])()

    def in_eight_bits() -> AbstractContextManager[Any]:
        if hasattr(te, "autocast"):
            return te.autocast(enabled=True, recipe=recipe)
        return te.fp8_autocast(enabled=True, fp8_recipe=recipe)

    @cache
    def linear(outputs: int, inputs: int) -> Any:
        """Layer without a weight of its own; current scaling keeps nothing from call to call."""
        return te.Linear(inputs, outputs, bias=False, params_dtype=torch.float32, device="meta")

    def multiply(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:  # noqa: A002 - nn.Linear's own name
        rows = input.reshape(-1, input.shape[-1])
        filled = torch.nn.functional.pad(rows, (0, 0, 0, -rows.shape[0] % _ROWS))
        layer = linear(*weight.shape)
        own = layer._parameters["weight"]
        layer._parameters["weight"] = weight  # shared for this call: it is never the layer's
        try:
            with in_eight_bits():
                out = layer(filled)
        finally:
            layer._parameters["weight"] = own
        return out[: rows.shape[0]].reshape(*input.shape[:-1], weight.shape[0])

    return multiply


def prove(
    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], device: torch.device
) -> None:
    """Compare a product and its gradients with exact ones.

    Raises:
        RuntimeError: one of them is wrong, or was not computed in 8 bits.
    """
    generator = torch.Generator(device).manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=torch.float32)

    inputs = drawn(3, 15, 64).to(torch.bfloat16).requires_grad_()
    weight = torch.nn.Parameter(drawn(32, 64))
    gradient = drawn(3, 15, 32)
    with torch.enable_grad(), torch.autocast(device.type, torch.bfloat16):
        out = multiply(inputs, weight)
    out.backward(gradient.to(out.dtype))
    rows, gradients = inputs.detach().float().reshape(-1, 64), gradient.reshape(-1, 32)
    with torch.autocast(device.type, enabled=False):
        exact = {
            "output": (out, rows @ weight.detach().T),
            "gradient of the input": (inputs.grad, gradients @ weight.detach()),
            "gradient of the weight": (weight.grad, gradients.T @ rows),
        }
    for what, (found, right) in exact.items():
        if found is None or found.numel() != right.numel():
            raise RuntimeError(f"a small product has no {what}")
        error = float((found.detach().float().reshape(right.shape) - right).norm() / right.norm())
        if not _EXACT < error < _WRONG:
            raise RuntimeError(f"the {what} of a small product is off by {error:.2%}")


def _version() -> str:
    for name in ("transformer_engine", "transformer-engine", "transformer_engine_torch"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""
