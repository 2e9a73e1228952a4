"""How long 16 bits take compared with float32 on this machine, measured before the user switches.

CPUs differ by more than a hundred times: with AMX a bf16 product is several times faster than
float32's, and without native fp16 arithmetic torch computes fp16 products up to 56 times slower.
The user should not have to train a step to find that out. So matrix products are timed once per
process and device, when a panel first needs it, within about `BUDGET_S`; "Check again" times them
again.

Only the CPU is timed: on a GPU timing would mean waiting for the device, and 16 bits are not slower
there.
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
"""Time in seconds for all types of one device together; a product in progress is waited for."""
SIZES = (512, 256, 128, 64)
"""Sides of the square matrices: the largest whose product fits the budget several times is used."""
_ROUNDS = 7
_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass(frozen=True)
class Ratio:
    """Time of a product in 16 bits divided by that of float32."""

    value: float
    """Median of the pairs; below 1: faster."""
    low: float
    """The smallest ratio of a pair."""
    high: float
    size: int
    """Side of the matrices."""
    num_pairs: int
    at: str
    """The time of day of the measurement."""

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
        return f"Not distinguishable from fp32: {ends} its time {how.removeprefix('than fp32 ')}."


_measured: dict[tuple[str, torch.dtype], Ratio] = {}
_one_at_a_time = threading.Lock()
on_forget(_measured.clear)


def known_ratio(device: torch.device, dtype: torch.dtype) -> Ratio | None:
    """Return what was measured, which costs nothing; None if nothing was."""
    return _measured.get((device.type, dtype))


def measure(device: torch.device) -> None:
    """Time 16 bits on ``device`` unless that is done; a second caller waits for the first."""
    if device.type != "cpu" or len(_measured) == len(_NAMES):
        return
    with _one_at_a_time:
        for dtype in _NAMES:
            if (device.type, dtype) not in _measured:
                _measured[device.type, dtype] = time_products(dtype, BUDGET_S / len(_NAMES))


def time_products(dtype: torch.dtype, budget_s: float) -> Ratio:
    """Median time of a CPU product in ``dtype`` divided by that of float32, interleaved."""
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
    """Estimated by a product of the smallest size, which has less work by the cube of the side."""
    small = torch.ones(SIZES[-1], SIZES[-1], dtype=dtype, device="cpu")
    _seconds(lambda: small @ small)  # the first call sets up its kernel
    seconds = min(_seconds(lambda: small @ small) for _ in range(2))
    return seconds * (size / SIZES[-1]) ** 3 * 4 < budget_s


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    with torch.inference_mode(), torch.autocast("cpu", enabled=False):
        work()
    return time.perf_counter() - start
