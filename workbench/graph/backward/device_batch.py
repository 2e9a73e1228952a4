"""Gradients measured on an accelerator and read later, in one transfer per device.

Nothing here waits for the device or copies a gradient: norms are reductions, and the non-finite
values of a large gradient are counted piece by piece.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from workbench.graph.backward.gradient_stats import (
    MOST_ROWS,
    NUM_SAMPLES,
    Part,
    Statistics,
    l2_norm,
    num_non_finite,
    sample_of,
    wide,
)
from workbench.graph.backward.histogram import Bins, bins_of_each, filled

if TYPE_CHECKING:
    from torch import Tensor

_MOST_SAMPLES = 2**22
"""Total number of values copied for histograms; beyond it only a few per gradient are copied."""
_FEW = 2**8


@dataclass
class _Later:
    """One gradient measured on a device."""

    key: Any
    part: tuple[int, int, int]
    """Number of values, how often each is repeated, number of implicit zeros."""
    scalars: tuple[Tensor, Tensor, Tensor, Tensor]
    """Norm, largest magnitude, number of non-zero values, number of non-finite values."""
    sample: Tensor
    """A copy of some values, for the histogram."""
    rows: Tensor | None
    """Largest magnitude in each row of the batch; NaN or infinite if a value is."""


class Pending:
    """Gradients that were measured on devices and are not read yet."""

    def __init__(self) -> None:
        self._waiting: dict[torch.device, list[_Later]] = defaultdict(list)
        self._num_samples = 0

    def add(
        self, key: Any, part: Part, rows_of: Tensor | None = None, *, histogram: bool = True
    ) -> None:
        """Measure ``part`` on its device; ``key`` identifies the result."""
        values, repeat, implicit = part
        count = values.numel()
        if not count:
            return
        scalars = (
            l2_norm(values),
            torch.linalg.vector_norm(values, math.inf),
            torch.linalg.vector_norm(values, 0, dtype=wide(values)),
            num_non_finite(values),
        )
        rows = None
        if rows_of is not None:
            dims = list(range(1, rows_of.dim()))
            rows = torch.linalg.vector_norm(rows_of, math.inf, dim=dims) if dims else rows_of
        most = NUM_SAMPLES if self._num_samples < _MOST_SAMPLES else _FEW
        sample = sample_of(values, most) if histogram else values.new_empty(0)
        self._num_samples += sample.numel()
        later = _Later(key, (count, repeat, implicit), scalars, sample, rows)
        self._waiting[values.device].append(later)

    def read(self, unit: float = 1.0) -> list[tuple[Any, Statistics]]:
        """(key, statistics) of everything that was added; one transfer per device.

        Args:
            unit: divisor of the magnitudes in the histograms.
        """
        waiting, self._waiting = self._waiting, defaultdict(list)
        self._num_samples = 0
        return [found for group in waiting.values() for found in _read_group(group, unit)]


def _read_group(group: list[_Later], unit: float) -> Iterator[tuple[Any, Statistics]]:
    on_mps = group[0].scalars[0].device.type == "mps"  # MPS has no float64
    dtype = torch.float32 if on_mps else torch.float64
    parts = [torch.stack([later.scalars[i].to(dtype) for later in group]) for i in range(4)]
    parts += [later.rows.to(dtype).flatten() for later in group if later.rows is not None]
    num_samples = sum(later.sample.numel() for later in group)
    parts += [later.sample.to(dtype) for later in group]
    numbers = torch.cat(parts).cpu()
    table = numbers[: 4 * len(group)].view(4, -1).t().tolist()
    at = 4 * len(group)
    histograms = _histograms(group, numbers[len(numbers) - num_samples :] / unit)
    for later, (norm, largest, num_other, num_bad), bins in zip(
        group, table, histograms, strict=True
    ):
        count, repeat, implicit = later.part
        rows: tuple[int, ...] = ()
        if later.rows is not None:
            own = numbers[at : at + later.rows.numel()]
            at += later.rows.numel()
            rows = tuple((~own.isfinite()).nonzero().flatten()[:MOST_ROWS].tolist())
        yield (
            later.key,
            Statistics(
                norm=norm * math.sqrt(repeat),
                largest=largest,
                zeros=(count - num_other) * repeat + implicit,
                non_finite=int(num_bad) * repeat,
                size=count * repeat + implicit,
                rows=rows,
                bins=filled(bins, (num_other - num_bad) * repeat),
            ),
        )


def _histograms(group: list[_Later], samples: Tensor) -> list[Bins]:
    starts = [0, *itertools.accumulate(later.sample.numel() for later in group)][:-1]
    return bins_of_each(samples.double().numpy(), starts)
