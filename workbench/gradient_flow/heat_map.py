"""A gradient flow reduced to the cells of a picture.

Where there are more columns than cells, neighbouring columns share a cell. It shows their largest
norm, so that no spike is lost, and the share of them that had no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.records import NOT_MEASURED

if TYPE_CHECKING:
    from workbench.records import GradientFlow

NUM_LEVELS = 9

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Cells ``[num_rows, num_cells]`` in the order of the record's rows and steps."""

    first_step: npt.NDArray[np.int64]
    last_step: npt.NDArray[np.int64]
    """First and last step that each cell covers, ``[num_cells]``."""
    norm: Floats
    """Largest norm; infinity where one was not finite, NaN where there was none."""
    missing: Floats
    """Share of the sampled steps at which the module got no gradient; NaN where it was not part of
    the model."""

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest norm above 0, the ends of the colour scale; (1, 1) if none exist."""
        shown = self.norm[np.isfinite(self.norm) & (self.norm > 0)]
        return (float(shown.min()), float(shown.max())) if shown.size else (1.0, 1.0)

    def levels(self) -> npt.NDArray[np.int64]:
        """Level on the logarithmic scale, 0 to 8; -1 where the norm is 0 or there is none."""
        low, high = np.log10(self.limits)
        shown = np.isfinite(self.norm) & (self.norm > 0)
        found = np.full(self.norm.shape, -1, np.int64)
        place = (np.log10(self.norm[shown]) - low) / (high - low if high > low else 1.0)
        found[shown] = np.clip(place * NUM_LEVELS, 0, NUM_LEVELS - 1)
        return found


def heat_map_of(record: GradientFlow, most: int) -> HeatMap:
    """Reduce ``record`` to at most ``most`` cells per row, each of equally many columns.

    Raises:
        ValueError: the record is damaged.
    """
    norms = record.matrix().astype(np.float64)
    count = norms.shape[1]
    length = max(1, -(-count // most))
    starts = np.arange(0, count, length)
    ends = np.minimum(starts + length, count)
    if not count:
        nothing = np.empty((len(norms), 0))
        return HeatMap(record.step, record.step, nothing, nothing)
    measured = norms != NOT_MEASURED
    gaps = np.isnan(norms)
    # -1 stands for both kinds of missing value while the maximum is computed
    largest = np.maximum.reduceat(np.where(gaps, -1.0, norms), starts, axis=1)
    sampled = np.add.reduceat(measured.astype(float), starts, axis=1)
    without = np.add.reduceat(gaps.astype(float), starts, axis=1)
    with np.errstate(invalid="ignore"):
        missing = np.where(sampled > 0, without / sampled, np.nan)
    norm = np.where(largest < 0, np.nan, largest)
    return HeatMap(record.step[starts], record.step[ends - 1], norm, missing)
