"""TF32: products of float32 matrices with 10 bits of mantissa instead of 23.

NVIDIA GPUs from compute capability 8.0 on multiply float32 matrices several times faster that way;
sums, parameters and gradients stay float32. Convolutions on CUDA are computed in TF32 by torch's
own default (``torch.backends.cudnn.conv.fp32_precision``), which is left as it is.

The switches are global to the process, not to a thread. So they are set only while a forward or a
backward computes and restored exactly; what another thread multiplies in float32 on the same kind
of device during that time is computed in TF32 too. Steps that overlap share one hold, which the
last of them ends.

torch has two interfaces to the same switches, and refuses to answer through the older one if the
two disagree, which Inductor would run into. `torch.set_float32_matmul_precision` leaves them in
agreement and is what is used, unless the user has already set them apart. It also leaves ``ieee``
where there was ``none`` ("not said"), so the newer ones are restored separately.

Whether a device has TF32 is not looked up but measured: if it has, ``1 + 2**-12`` times 1 loses a
bit.

Source of the rules: "TensorFloat-32 (TF32) on Ampere (and later) devices" in the notes of the
PyTorch documentation, and ``aten/src/ATen/Context.cpp``.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from workbench.modes.core.machine_probes import first_line, once
from workbench.records import ModeChoice

_PROBE_SIZE = 256
"""Side of the product that is inspected: large enough for the kernels that training uses."""


@dataclass(frozen=True)
class _Settings:
    """What decides how float32 matrices are multiplied in this process."""

    older: str | None
    """``torch.get_float32_matmul_precision()``; None if torch refuses to answer."""
    cuda: str
    mkldnn: str

    @classmethod
    def now(cls) -> _Settings:
        try:
            older = torch.get_float32_matmul_precision()
        except RuntimeError:  # the newer ones were set without it
            older = None
        cuda: Any = torch.backends.cuda.matmul.fp32_precision
        mkldnn: Any = _mkldnn_matmul().fp32_precision
        return cls(older, cuda, mkldnn)

    def use_tf32(self) -> None:
        """Request TF32 in the interface that these settings are in."""
        if self.older is not None:
            torch.set_float32_matmul_precision("high")
        else:
            _set("tf32", "tf32")

    def put_back(self) -> None:
        if self.older is not None:
            torch.set_float32_matmul_precision(self.older)
        _set(self.cuda, self.mkldnn)


def _set(cuda: str, mkldnn: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = cuda
    _mkldnn_matmul().fp32_precision = mkldnn


def _mkldnn_matmul() -> Any:
    return torch.backends.mkldnn.matmul  # pyright: ignore[reportAttributeAccessIssue] - the module makes it at run time


class _Hold:
    """The switches, which any number of steps can hold at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before = _Settings(None, "none", "none")

    def take(self) -> None:
        with self._lock:
            if not self._holders:
                self._before = _Settings.now()
                self._before.use_tf32()
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders:
                self._before.put_back()


_hold = _Hold()


@contextmanager
def tf32_products() -> Generator[None]:
    """Multiply float32 matrices in TF32 inside, if the hardware can; may be nested and overlap."""
    _hold.take()
    try:
        yield
    finally:
        _hold.release()


@once
def tf32_choice(device: torch.device) -> ModeChoice:
    """Whether ``device`` computes in TF32 on request, as seen in one product."""
    kind = device.type.upper()
    try:
        loses = _loses_bits(device)
    except (RuntimeError, NotImplementedError) as error:
        return _refused(f"A product of float32 matrices failed on {kind}: {first_line(error)}.")
    if not loses:
        return _refused(
            f"This {kind} has no TF32: under torch's setting for it, a product of float32 matrices "
            "kept all its bits."
        )
    return ModeChoice(
        value="tf32",
        why="Products of float32 matrices with 10 bits of mantissa instead of 23. The setting is "
        "the process's; it is held while a step computes.",
    )


def _refused(why: str) -> ModeChoice:
    remedy = "Use bf16 here, or an NVIDIA GPU of compute capability 8.0 or newer."
    return ModeChoice(value="tf32", available=False, why=why, remedy=remedy)


def _loses_bits(device: torch.device) -> bool:
    fine = torch.full((_PROBE_SIZE, _PROBE_SIZE), 1 + 2**-12, device=device, dtype=torch.float32)
    unit = torch.eye(_PROBE_SIZE, device=device, dtype=torch.float32)
    with torch.autocast(device.type, enabled=False), torch.no_grad(), tf32_products():
        return not torch.equal(fine @ unit, fine)
