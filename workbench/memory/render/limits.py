"""Upper limits in a memory chart: reserved bytes, a GPU's limit, requests it refused.

Both pictures of a record (`workbench.memory.render.svg`, `workbench.memory.render.figure`) draw
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.memory.reading.chart import edges_of
from workbench.memory.reading.text import gpu_label
from workbench.records import MemoryChart, MemoryRecord

_FAR = 2
"""A limit more than this many times what is drawn would leave the picture empty: it is only
named."""


@dataclass(frozen=True)
class Refused:
    """A request that was refused."""

    point: int
    """Point of the chart."""
    level: int
    """Bytes reserved then, or bytes allocated if reserved bytes are not known."""
    num_bytes: int
    """Requested bytes."""


@dataclass(frozen=True)
class Limits:
    """The limits, in points and bytes of a chart."""

    reserved: npt.NDArray[np.int64] | None
    """The maximum of reserved bytes in the range of each point; None if the record has no
    segments."""
    gpu: str
    """The name from `gpu_label`."""
    gpu_bytes: int
    """Bytes of the GPU that an allocator may use; -1 if there is no GPU."""
    interval: tuple[int, int] | None
    """Interval of the reserved bytes of a predicted peak; None if it is a single number."""
    refused: tuple[Refused, ...]
    top: int
    """The largest number of bytes to be drawn."""

    @property
    def shows_gpu(self) -> bool:
        """Whether the GPU's limit is drawn, and not only named."""
        return 0 <= self.gpu_bytes <= self.top


def limits_of(record: MemoryRecord, chart: MemoryChart) -> Limits:
    """Return the limits of ``record``, as its ``chart`` draws them."""
    edges = edges_of(len(record.event_time_us) + 1, chart.num_points)
    reserved = record.reserved() if len(record.segment_bytes) else None
    low, high = record.peak_interval
    interval = (low, high) if record.is_predicted and 0 <= low < high else None
    drawn = max(chart.peak_bytes, chart.reserved_bytes, high if interval else 0, 1)
    near = record.card_bytes <= _FAR * drawn
    return Limits(
        reserved=None if reserved is None else np.maximum.reduceat(reserved, edges),
        gpu=gpu_label(record.card),
        gpu_bytes=record.card_bytes,
        interval=interval,
        refused=_refused(record, edges, reserved),
        top=max(drawn, record.card_bytes) if near else drawn,
    )


def _refused(
    record: MemoryRecord, edges: npt.NDArray[np.int64], reserved: npt.NDArray[np.int64] | None
) -> tuple[Refused, ...]:
    level = record.series().sum(axis=0) if reserved is None else reserved
    columns = np.asarray(record.oom_event, dtype=np.int64) + 1
    points = np.searchsorted(edges, columns, side="right") - 1
    rows = zip(points.tolist(), level[columns].tolist(), record.oom_bytes.tolist(), strict=True)
    return tuple(Refused(*row) for row in rows)
