"""Attention: which kernel ``scaled_dot_product_attention`` may use.

torch selects one by itself (``auto``). Any other value allows only that kernel, through
`torch.nn.attention.sdpa_kernel` around forward and loss; backward uses what forward chose. A call
that the chosen kernel cannot serve (for example, flash on the CPU has no dropout) raises in torch;
the error then says what to choose instead, and the user's own frames stay on top of it.

``sdpa_kernel`` sets switches of the whole process, not of a thread. So a lock keeps two forwards
with a chosen kernel from restoring each other's switches, and what this machine can run is tried
once, when the first `Attention` for a device is created, and never alongside a step that trains.
One limitation remains: while one experiment's forward runs under a chosen kernel, another's under
``auto`` that runs at the same moment uses it too.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from workbench.modes.attention_use import calls_sdpa, configured_attention
from workbench.modes.core.base import Mode
from workbench.modes.core.machine_probes import first_line, on_forget
from workbench.records import ModeChoice

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}

_NO_KERNEL = ("No available kernel", "No viable backend")
"""How torch's two refusals begin (aten/src/ATen/native/transformers/sdp_utils*.cpp)."""

_reasons: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
on_forget(_reasons.clear)

_switches = threading.RLock()


class Attention(Mode):
    """The attention kernel: torch's own choice, or one kernel by name."""

    name: ClassVar[str] = "attention"
    label: ClassVar[str] = "Attention"
    default: ClassVar[str] = "auto"
    values: ClassVar[tuple[str, ...]] = ("auto", "flash", "efficient", "math", "cudnn")
    order: ClassVar[int] = 10
    unguarded: ClassVar[bool] = True

    def __init__(self, value: str, device: torch.device) -> None:
        super().__init__(value, device)
        self.choices(device)

    @classmethod
    def choices(cls, device: torch.device) -> tuple[ModeChoice, ...]:
        """Torch's own choice and every kernel, each tried on ``device`` with one small attention.

        cudnn is left out if there is no CUDA: it is not a choice there.
        """
        kernels = [value for value in BACKENDS if value != "cudnn" or device.type == "cuda"]
        return ModeChoice(value="auto"), *(_choice(value, device) for value in kernels)

    def no_effect_reason(self, model: nn.Module) -> str:
        """Why no choice of kernel can matter for ``model``; ``""`` if it may, or is unknown."""
        reason = _reasons.get(model)
        if reason is None:
            reason = _reasons[model] = _no_effect_reason(model)
        return reason

    def forward_context(self) -> AbstractContextManager[Any]:
        """Allow only the chosen kernel."""
        if self.value == self.default:
            return super().forward_context()
        return _only(self.value)


@contextmanager
def _only(value: str) -> Generator[None]:
    with _switches, sdpa_kernel(BACKENDS[value]):
        try:
            yield
        except RuntimeError as error:
            if not str(error).startswith(_NO_KERNEL):
                raise
            raise RuntimeError(
                f"attention:{value} cannot compute this model's attention ({first_line(error)}); "
                "choose attention:auto or attention:math"
            ).with_traceback(error.__traceback__) from None


def _no_effect_reason(model: nn.Module) -> str:
    configured = configured_attention(model)
    if configured and configured != "sdpa":
        return f"model uses {configured} attention"
    if configured == "sdpa" or calls_sdpa(model) != "no":
        return ""
    return "model has no attention"


@cache  # permanently: the kernels do not change while the process lives
def _choice(value: str, device: torch.device) -> ModeChoice:
    half = _failure(value, device, torch.bfloat16) and _failure(value, device, torch.float16)
    full = _failure(value, device, torch.float32)
    if not full:
        return ModeChoice(value=value)
    if not half:
        return ModeChoice(
            value=value,
            why=f"The {value} kernel runs in 16 bits only on this {device.type.upper()}.",
            remedy="Choose bf16 or fp16 with it.",
        )
    return ModeChoice(
        value=value,
        available=False,
        why=f"torch has no {value} attention kernel for this {device.type.upper()}.",
        remedy="Use auto: it picks the best kernel that fits.",
    )


def _failure(value: str, device: torch.device, dtype: torch.dtype) -> str:
    """Why one forward and backward under the kernel failed, or ``""``."""
    try:
        query = torch.ones(1, 2, 16, 16, device=device, dtype=dtype, requires_grad=True)
        with (
            _switches,
            warnings.catch_warnings(),
            torch.enable_grad(),
            sdpa_kernel(BACKENDS[value]),
        ):
            warnings.simplefilter("ignore")  # torch lists on stderr why a kernel was passed over
            out = nn.functional.scaled_dot_product_attention(query, query, query)
            out.float().sum().backward()
    except (RuntimeError, NotImplementedError) as error:
        return first_line(error)
    return ""
