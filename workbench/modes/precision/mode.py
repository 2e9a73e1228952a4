"""Precision: the floating-point type in which forward and loss are computed.

``bf16`` and ``fp16`` run forward and loss under autocast: parameters, gradients and optimizer state
stay float32, matrix products and convolutions run in 16 bits. Autocast keeps a cache of cast
weights for as long as its outermost context is open, so a context that outlived an optimizer step
would train on stale weights: it wraps forward and loss, and nothing else. fp16 needs a gradient
scaler (`workbench.modes.precision.scaler`); bf16 has the exponent range of float32 and needs none.

``tf32`` leaves all types as they are and multiplies float32 matrices with fewer bits, in forward
and backward (`workbench.modes.precision.tf32`). ``fp8``, ``fp8-rowwise`` and ``mxfp8`` are ``bf16``
with linear layers that multiply in 8 bits (`workbench.modes.precision.low_precision`).

Source of the rules: "Automatic Mixed Precision package - torch.amp" in the PyTorch documentation.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from workbench.modes.core.base import Mode
from workbench.modes.core.machine_probes import first_line, once
from workbench.modes.precision.float8 import EMULATED, VALUES, float8_choice, is_native
from workbench.modes.precision.low_precision import LayersInEightBits, refusal
from workbench.modes.precision.low_precision_speed import Ratio, known_ratio, measure
from workbench.modes.precision.scaler import GradientScaler
from workbench.modes.precision.tf32 import tf32_choice, tf32_products
from workbench.records import ModeChoice

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    **dict.fromkeys(VALUES, torch.bfloat16),
}
"""Value -> the type that autocast computes in."""

_SLOW = 1.5
"""A type that takes this many times as long as fp32 is offered with advice."""


class Precision(Mode):
    """Precision: fp32 as written, with fewer bits in products, or autocast to at most 16 bits."""

    name: ClassVar[str] = "precision"
    label: ClassVar[str] = "Precision"
    default: ClassVar[str] = "fp32"
    values: ClassVar[tuple[str, ...]] = ("fp32", "tf32", "bf16", "fp16", *VALUES)
    bare: ClassVar[bool] = True
    order: ClassVar[int] = 40

    def __init__(self, value: str, device: torch.device) -> None:
        super().__init__(value, device)
        self._dtype = DTYPES.get(value)
        self.scaler = GradientScaler(device) if value == "fp16" else None
        """The scaler of fp16; None with any other value."""
        self.note = "" if value not in VALUES or is_native(value, device) else EMULATED
        self._layers = LayersInEightBits(value, native=not self.note) if value in VALUES else None
        self._carried: dict[str, Any] = {}

    @classmethod
    def choices(cls, device: torch.device) -> tuple[ModeChoice, ...]:
        """Every value, each tried on ``device``, with what was measured of it, if anything was."""
        return tuple(_with_ratio(_choice(value, device), device) for value in cls.values)

    def choices_for(self, model: nn.Module) -> tuple[ModeChoice, ...]:
        """`choices` for a panel: 16 bits are timed first, once per process (at most 0.2 s)."""
        measure(self.device)
        return super().choices_for(model)

    def refusal(self, model: nn.Module) -> str:
        """Why 8 bits would change no layer of ``model``."""
        if self._layers is None:
            return ""
        return refusal(model, self.value, native=not self.note)

    def forward_context(self) -> AbstractContextManager[Any]:
        """Autocast to the chosen type; a new context each time, so that it may be nested."""
        if self.value == "tf32":
            return tf32_products()
        if self._dtype is None:
            return super().forward_context()
        return torch.autocast(self.device.type, self._dtype)

    def so_far(self) -> str:
        """The gradient scale, and the number of skipped updates."""
        return "" if self.scaler is None else f"gradient scale {self.scaler}"

    def attach(self, model: nn.Module) -> None:
        """Convert layers to 8 bits; have the scaler name parameters whose gradients overflow."""
        if self._layers is not None:
            self._layers.attach(model)
        if self.scaler is not None:
            self.scaler.follow(model)

    def detach(self, model: nn.Module) -> None:  # noqa: ARG002 - what was attached is remembered
        """Leave every layer as it was."""
        if self._layers is not None:
            self._layers.detach()

    def backward(self, loss: torch.Tensor) -> None:
        """Run backward from the loss, scaled if the scaler is in use."""
        if self.scaler is not None:
            self.scaler.backward(loss)
        elif self.value == "tf32":
            with tf32_products():
                super().backward(loss)
        else:
            super().backward(loss)

    def before_clip(self, *optimizers: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale, in place."""
        if self.scaler is not None:
            self.scaler.unscale(*optimizers)

    def optimizer_step(self, *optimizers: torch.optim.Optimizer) -> bool:
        """Update, unless scaled gradients overflowed; then lower the scale and return False."""
        if self.scaler is None:
            return super().optimizer_step(*optimizers)
        return self.scaler.step(*optimizers)

    def state_dict(self) -> dict[str, Any]:
        """The scaler's state and counts; carried along unread while another precision is chosen."""
        return dict(self._carried) if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`, written by any precision."""
        self._carried = dict(state)
        if self.scaler is not None and "scaler" in state:
            self.scaler.load_state_dict(state)


@once
def _choice(value: str, device: torch.device) -> ModeChoice:
    """The choice without anything that depends on a measurement."""
    if value == "tf32":
        return tf32_choice(device)
    if value in VALUES:
        return float8_choice(value, device)
    if value == Precision.default:
        return ModeChoice(value=value)
    try:
        _try_autocast(device, DTYPES[value])
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return ModeChoice(
            value=value,
            available=False,
            why=f"A {value} product failed on {device.type}: {first_line(error)}.",
            remedy="Use fp32 here.",
        )
    if value == "bf16" and not _native_bf16(device):
        return ModeChoice(
            value=value,
            why="This GPU has no bf16 units: torch emulates them.",
            remedy="Use fp16 here.",
        )
    return ModeChoice(value=value)


def _with_ratio(choice: ModeChoice, device: torch.device) -> ModeChoice:
    """Return ``choice`` with its measured ratio, if 16 bits are all there is to it."""
    ratio = None if choice.value in VALUES else _ratio(choice.value, device)
    if ratio is None or not choice.available:
        return choice
    if ratio.low < _SLOW:
        return replace(choice, why=str(ratio))
    other = _ratio("bf16", device)
    better = choice.value == "fp16" and other is not None and other.value < ratio.value
    return replace(choice, why=str(ratio), remedy=f"Use {'bf16' if better else 'fp32'} here.")


def _ratio(value: str, device: torch.device) -> Ratio | None:
    dtype = DTYPES.get(value)
    return None if dtype is None else known_ratio(device, dtype)


def _native_bf16(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)


def _try_autocast(device: torch.device, dtype: torch.dtype) -> None:
    weight = torch.ones(8, 8, device=device, dtype=torch.float32, requires_grad=True)
    with torch.enable_grad(), torch.autocast(device.type, dtype):
        out = torch.nn.functional.linear(torch.ones_like(weight), weight)
    if out.dtype != dtype:
        raise RuntimeError(f"autocast computed in {out.dtype} instead of {dtype}")
    out.float().sum().backward()
