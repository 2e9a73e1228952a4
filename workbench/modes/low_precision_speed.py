"""How long 16 bits take beside float32 on this machine, measured before anybody switches.

CPUs differ by more than a hundred times: with AMX a bf16 product is several times faster than
float32's, and without native fp16 arithmetic torch computes fp16 products up to 56 times slower.
Nobody should have to train a step to find that out. So products of matrices are timed once per
process and device, when a panel first asks, within about `BUDGET_S`; "Check again" times anew.

Only the CPU is timed: on a GPU it would mean waiting for the device, where 16 bits are not slower.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from workbench.modes.probes import on_forget

BUDGET_S = 0.15
"""All types of one device together; a product under way is waited for."""
SIZES = (512, 256, 128, 64)
"""Sides of the square matrices: the largest whose product fits the budget several times."""
_ROUNDS = 7
_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass(frozen=True)
class Ratio:
    """Time of a product in 16 bits over float32's."""

    value: float
    """Below 1: faster."""
    size: int
    """Side of the matrices."""

    def __str__(self) -> str:
        where = f"on this CPU, in a product of {self.size} × {self.size} matrices"
        if self.value >= 1.1:
            return f"Measured {self.value:.2g}× slower than fp32 {where}."
        if self.value <= 0.9:
            return f"Measured {1 / self.value:.2g}× faster than fp32 {where}."
        return f"Measured as fast as fp32 {where}."


_measured: dict[tuple[str, torch.dtype], Ratio] = {}
_one_at_a_time = threading.Lock()
on_forget(_measured.clear)


def known_ratio(device: torch.device, dtype: torch.dtype) -> Ratio | None:
    """What was measured; None where nothing was, which costs nothing."""
    return _measured.get((device.type, dtype))


def measure(device: torch.device) -> None:
    """Time 16 bits on ``device`` unless that was done; a second caller waits for the first."""
    if device.type != "cpu" or len(_measured) == len(_NAMES):
        return
    with _one_at_a_time:
        for dtype in _NAMES:
            if (device.type, dtype) not in _measured:
                _measured[device.type, dtype] = time_products(dtype, BUDGET_S / len(_NAMES))


def time_products(dtype: torch.dtype, budget_s: float) -> Ratio:
    """Median time of a CPU product in ``dtype`` over float32's, interleaved."""
    deadline = time.perf_counter() + budget_s
    size = next((size for size in SIZES if _fits(size, dtype, budget_s)), SIZES[-1])
    full = torch.ones(size, size, dtype=torch.float32, device="cpu")
    half = full.to(dtype)
    times: tuple[list[float], list[float]] = ([], [])
    while not times[0] or (len(times[0]) < _ROUNDS and time.perf_counter() < deadline):
        times[0].append(_seconds(lambda: full @ full))
        times[1].append(_seconds(lambda: half @ half))
    return Ratio(statistics.median(times[1]) / statistics.median(times[0]), size)


def _fits(size: int, dtype: torch.dtype, budget_s: float) -> bool:
    """Judged by a product of the smallest size, which has less work by the cube of the side."""
    small = torch.ones(SIZES[-1], SIZES[-1], dtype=dtype, device="cpu")
    _seconds(lambda: small @ small)  # the first call sets up its kernel
    seconds = min(_seconds(lambda: small @ small) for _ in range(2))
    return seconds * (size / SIZES[-1]) ** 3 * 4 < budget_s


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    with torch.inference_mode(), torch.autocast("cpu", enabled=False):
        work()
    return time.perf_counter() - start
