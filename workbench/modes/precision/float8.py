"""Matrix products in 8 bits, as torchao computes them in training, or TransformerEngine.

Three recipes. ``fp8`` scales each operand by one number, found from its largest value in the same
step (dynamic scaling), and rounds input and weight to e4m3 (3 bits of mantissa) and the gradient of
the output to e5m2 (2 bits, a wider range). ``fp8-rowwise`` has one scale per row, a power of two,
and e4m3 throughout. ``mxfp8`` is the OCP's microscaling format: one scale, a power of two, per
block of 32 values, and e4m3 throughout. All three products of a linear layer (output, gradient of
the input, gradient of the weight) are computed in this way; parameters, their gradients and the
optimizer are not.

*Native or emulated.* fp8 has kernels from compute capability 8.9 on (8.9: one scale per tensor
only), mxfp8 on 10.x. On other hardware torchao rounds the operands in the same way and multiplies
the values that they stand for in 32 or 16 bits: the numbers are those of the format, the speed is
not.

torchao states that the functions used here may change, so they are used in this file alone, for the
versions of `TESTED`, and a test fails loudly if they move.

Sources: ``torchao/float8/float8_linear.py`` and ``config.py``;
``torchao/prototype/moe_training/mxfp8_linear.py``; "OCP Microscaling Formats (MX) Specification",
version 1.0; NVIDIA's list of formats by compute capability.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import nn

from workbench.modes.core.machine_probes import first_line, once
from workbench.modes.precision.transformer_engine import Engine, engine, engine_product
from workbench.records import ModeChoice

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""``(input [..., K], weight [N, K]) -> [..., N]``, differentiable."""

VALUES = ("fp8", "fp8-rowwise", "mxfp8")
TESTED = "0.18"
_ATTEMPTS = 5
"""Attempts to refresh what is on disk, as other threads may do so at the same moment."""
PIP_LINE = 'pip install "torchao>=0.18,<0.19"'
MULTIPLES = {"fp8": 16, "fp8-rowwise": 16, "mxfp8": 32}
"""Both sides of a weight must be multiples of this: the kernels' rule, and the block of one
scale."""
EMULATED = "emulated: numerics only, slower"

_RECIPES = {"fp8": "tensorwise", "fp8-rowwise": "rowwise"}
_NATIVE_FROM = {"fp8": (8, 9), "fp8-rowwise": (9, 0), "mxfp8": (10, 0)}
_MXFP8_BELOW = (12, 0)
"""Consumer Blackwell has no kernels for it in torchao 0.18."""


@once
def float8_choice(value: str, device: torch.device) -> ModeChoice:
    """Whether ``device`` can train with ``value``, and whether it is emulated there."""
    by = engine(value, device) if is_native(value, device) else Engine()
    missing = "" if by.version else _missing()
    if missing:
        why = f"{missing} {by.problem}".strip()
        remedy = "Install it, then check again. The kernel and the training keep running."
        return ModeChoice(
            value=value, available=False, why=why, remedy=remedy, commands=(PIP_LINE,)
        )
    try:
        torch.ones(2, device=device).to(torch.float8_e4m3fn).float()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        why = f"torch has no 8-bit floats on {device.type}: {first_line(error)}."
        return ModeChoice(value=value, available=False, why=why, remedy="Use bf16 here.")
    if is_native(value, device):
        by_whom = f" (TransformerEngine {by.version})" if by.version else ""
        why = f"Linear layers multiply in 8 bits{by_whom}, the rest in bf16. {by.problem}".strip()
        return ModeChoice(value=value, why=why)
    return ModeChoice(
        value=value, why=f"{EMULATED.capitalize()}: {_lacks(value, device)}.", emulated=True
    )


@once
def is_native(value: str, device: torch.device) -> bool:
    """Whether ``device`` itself multiplies in the format of ``value``."""
    if device.type != "cuda" or torch.version.cuda is None:
        return False
    capability = torch.cuda.get_device_capability(device)
    if value == "mxfp8":
        return _NATIVE_FROM[value] <= capability < _MXFP8_BELOW
    return capability >= _NATIVE_FROM[value]


@cache
def product(value: str, *, native: bool) -> Product:
    """Return the product of ``value``; imports its library, which takes one to two seconds.

    The library is TransformerEngine if it is installed, on a GPU that has the format, otherwise
    torchao.
    """
    if native and torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        if engine(value, device).version:
            return engine_product(value)
    with _quiet():
        return _mxfp8(native=native) if value == "mxfp8" else _fp8(value, native=native)


def _fp8(value: str, *, native: bool) -> Product:
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    from torchao.float8.float8_linear import matmul_with_hp_or_float8_args

    config = Float8LinearConfig.from_recipe_name(_RECIPES[value])
    # a batch may have any number of rows, and they are the inner side of the weight's gradient
    config = replace(config, emulate=not native, pad_inner_dim=native)
    # torchao creates its settings of a product, and patches Inductor, when it converts a layer
    unused = nn.Sequential(nn.Linear(16, 16, bias=False, device="meta", dtype=torch.float32))
    converted: Any = convert_to_float8_training(unused, config=config)
    layer = converted[0]
    multiply: Any = matmul_with_hp_or_float8_args
    settings, config = layer.linear_mm_config, layer.config

    def fp8(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:  # noqa: A002 - nn.Linear's own name
        return multiply.apply(input, weight.t(), settings, config)

    return fp8


def _mxfp8(*, native: bool) -> Product:
    from torchao.prototype.moe_training import mxfp8_linear
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.quantization.quantize_.common import KernelPreference

    multiply: Any = mxfp8_linear._to_mxfp8_then_scaled_mm  # pyright: ignore[reportPrivateUsage] - torchao 0.18 has no public function for it
    kernels = KernelPreference.AUTO if native else KernelPreference.EMULATED
    rows_of_a_block = MULTIPLES["mxfp8"]

    def mxfp8(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as above
        rows = input.reshape(-1, input.shape[-1])
        # the gradient of the weight has blocks along the rows; rows of zeros change no value
        filled = nn.functional.pad(rows, (0, 0, 0, -rows.shape[0] % rows_of_a_block))
        out = multiply(filled, weight.to(input.dtype), kernels, ScaleCalculationMode.RCEIL)
        return out[: rows.shape[0]].reshape(*input.shape[:-1], weight.shape[0])

    return mxfp8


def _missing() -> str:
    """Why torchao cannot be used, or ``""``; does not import it."""
    _refresh_imports()  # it may have been installed since
    if importlib.util.find_spec("torchao") is None:
        return "Layers that train in 8 bits are torchao's, and torchao is not installed."
    try:
        installed = version("torchao")
    except PackageNotFoundError:
        return "The torchao that is importable has no version."
    if installed.split("+")[0].rsplit(".", 1)[0] != TESTED:
        return f"torchao {installed} is installed; Workbench uses the API of {TESTED}."
    return ""


def _refresh_imports() -> None:
    """Have the next import see what was installed meanwhile; safe from any thread.

    Python's own function is not: two threads that call it at once delete the same entry, and one of
    them gets a `KeyError`. Panel and cell call it on threads of their own, and so may any other
    code.
    """
    for _ in range(_ATTEMPTS):
        with suppress(KeyError):
            importlib.invalidate_caches()
            return


def _lacks(value: str, device: torch.device) -> str:
    if device.type != "cuda" or torch.version.cuda is None:
        return f"this {device.type.upper()} has no {value} arithmetic"
    major, minor = torch.cuda.get_device_capability(device)
    first = ".".join(map(str, _NATIVE_FROM[value]))
    needed = f"{first} to 11.x" if value == "mxfp8" else f"{first} or newer"
    return f"this GPU is of compute capability {major}.{minor}, and {value} needs {needed}"


@contextmanager
def _quiet() -> Generator[None]:
    """Suppress what the import logs about CUDA libraries for other torches; none is needed."""
    levels = {
        logger: logger.level
        for logger in map(logging.getLogger, ("torchao", "torch.utils._pytree"))
    }
    for logger in levels:
        logger.setLevel(logging.ERROR)  # loggers below it inherit this
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
