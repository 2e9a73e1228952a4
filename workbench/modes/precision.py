"""Precision: in which floating-point type the forward and the loss are computed.

``bf16`` and ``fp16`` run forward and loss under autocast: parameters, gradients and optimizer state
stay float32, matrix products and convolutions run in 16 bits. Autocast keeps a cache of cast
weights for as long as its outermost context is open, so a context that outlived an optimizer step
would train on stale weights: it wraps forward and loss, and nothing else.

fp16 needs a gradient scaler (`workbench.modes.scaler`); bf16 has the exponent range of float32 and
needs none.

Source of the rules: "Automatic Mixed Precision package - torch.amp" in the PyTorch documentation.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch import nn

from workbench.modes.base import Mode
from workbench.modes.probes import first_line, on_forget, once
from workbench.modes.scaler import GradientScaler
from workbench.records import ModeChoice

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Value -> the type autocast computes in."""

_PROBE_SIZE = 256
"""Side of the square matrices whose product is timed: large enough to be compute bound."""


class Precision(Mode):
    """fp32 as written, or autocast to bf16 or to fp16 with a gradient scaler."""

    name: ClassVar[str] = "precision"
    label: ClassVar[str] = "Precision"
    default: ClassVar[str] = "fp32"
    values: ClassVar[tuple[str, ...]] = ("fp32", "bf16", "fp16")
    order: ClassVar[int] = 40

    def __init__(self, value: str, device: torch.device) -> None:
        super().__init__(value, device)
        self._dtype = DTYPES.get(value)
        self.scaler = GradientScaler(device) if value == "fp16" else None
        """Of fp16; None with any other value."""
        self._carried: dict[str, Any] = {}

    @classmethod
    def choices(cls, device: torch.device) -> tuple[ModeChoice, ...]:
        """fp32, bf16 and fp16, each tried on ``device`` with one small forward and backward."""
        return _choices(device)

    def forward_context(self) -> AbstractContextManager[Any]:
        """Autocast to the chosen type; a fresh context each time, so that it may nest."""
        if self._dtype is None:
            return super().forward_context()
        return torch.autocast(self.device.type, self._dtype)

    def attach(self, model: nn.Module) -> None:
        """Name the parameters of ``model`` where gradients overflow."""
        if self.scaler is not None:
            self.scaler.follow(model)

    def backward(self, loss: torch.Tensor) -> None:
        """Backward from the loss, scaled where the scaler is in use."""
        if self.scaler is None:
            loss.backward()
        else:
            self.scaler.backward(loss)

    def before_clip(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale, in place."""
        if self.scaler is not None:
            self.scaler.unscale(optimizer)

    def optimizer_step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Update, unless scaled gradients overflowed; then lower the scale and return False."""
        if self.scaler is None:
            return super().optimizer_step(optimizer)
        return self.scaler.step(optimizer)

    def state_dict(self) -> dict[str, Any]:
        """The scaler's state and counts; carried unread while another precision is chosen."""
        return dict(self._carried) if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`, written by any precision."""
        self._carried = dict(state)
        if self.scaler is not None and "scaler" in state:
            self.scaler.load_state_dict(state)


@once
def _choices(device: torch.device) -> tuple[ModeChoice, ...]:
    return ModeChoice(value="fp32"), _choice("bf16", device), _choice("fp16", device)


def _choice(value: str, device: torch.device) -> ModeChoice:
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
    ratio = _slowdown(device, DTYPES[value]) if _may_measure() else None
    if ratio is None or ratio < 1.5:
        return ModeChoice(value=value)
    return ModeChoice(
        value=value,
        why=f"Measured {ratio:.3g}× slower than fp32 on this {device.type.upper()}, "
        f"in a product of {_PROBE_SIZE} × {_PROBE_SIZE} matrices.",
        remedy="Use fp32 here." if value == "bf16" else "Use bf16 here.",
    )


def _native_bf16(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)


def _try_autocast(device: torch.device, dtype: torch.dtype) -> None:
    weight = torch.ones(8, 8, device=device, requires_grad=True)
    with torch.enable_grad(), torch.autocast(device.type, dtype):
        out = torch.nn.functional.linear(torch.ones(8, 8, device=device), weight)
    if out.dtype != dtype:
        raise RuntimeError(f"autocast computed in {out.dtype} instead of {dtype}")
    out.float().sum().backward()


_asked = False


def _may_measure() -> bool:
    """Timing is done only after someone asked for a check: it takes about 0.1 s of the machine."""
    return _asked


def measure_when_asked() -> None:
    """From now on `Precision.choices` times half precision too, once per device."""
    global _asked  # noqa: PLW0603 - one flag per process: whether a person asked for a check
    _asked = True


on_forget(measure_when_asked)


def _slowdown(device: torch.device, dtype: torch.dtype, rounds: int = 5) -> float | None:
    """Median time of a product in ``dtype`` over fp32's, interleaved; None off the CPU."""
    if device.type != "cpu":
        return None
    full = torch.ones(_PROBE_SIZE, _PROBE_SIZE)
    half = full.to(dtype)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        times[0].append(_seconds(lambda: full @ full))
        times[1].append(_seconds(lambda: half @ half))
    return statistics.median(times[1]) / statistics.median(times[0])


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
