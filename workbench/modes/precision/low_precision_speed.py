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

from workbench.modes.core.machine_probes import on_forget

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
    """Below 1: faster. The median of pairs."""
    low: float
    """The least of a pair."""
    high: float
    size: int
    """Side of the matrices."""
    num_pairs: int
    at: str
    """The time of day when it was measured."""

    def __str__(self) -> str:
        products = "1 product" if self.num_pairs == 1 else f"{self.num_pairs} products"
        how = (
            f"than fp32 on this CPU at {self.at}, in {products} of "
            f"{self.size} × {self.size} matrices; steps of a model may differ"
        )
        if self.low > 1.1:
            ends = _range(self.low, self.high)
            return f"{self.value:.2g}× ({ends}) slower {how}."
        if self.high < 0.9:
            ends = _range(1 / self.high, 1 / self.low)
            return f"{1 / self.value:.2g}× ({ends}) faster {how}."
        ends = _range(self.low, self.high)
        return f"Not told apart from fp32: {ends} its time {how.removeprefix('than fp32 ')}."


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
    pairs: list[float] = []
    while not pairs or (len(pairs) < _ROUNDS and time.perf_counter() < deadline):
        before = _seconds(lambda: full @ full)
        pairs.append(_seconds(lambda: half @ half) / before)
    return Ratio(
        value=statistics.median(pairs),
        low=min(pairs),
        high=max(pairs),
        size=size,
        num_pairs=len(pairs),
        at=time.strftime("%H:%M"),
    )


def _range(low: float, high: float) -> str:
    return f"{low:.2g} to {high:.2g}×"


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
