"""What bounds a memory chart from above: reserved bytes, a card's limit, requests it refused.

Both pictures of a record (`workbench.memory.pictures.svg`, `workbench.memory.pictures.figure`) draw
it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.memory.reading.chart import edges_of
from workbench.memory.reading.describe import card_label
from workbench.records import MemoryChart, MemoryRecord

_FAR = 2
"""A limit beyond so many times what is drawn would leave the picture empty: it is named only."""


@dataclass(frozen=True)
class Refused:
    """A request that was refused."""

    point: int
    """Of the chart."""
    level: int
    """Bytes reserved then, or allocated where nothing is known to be reserved."""
    num_bytes: int
    """What was asked for."""


@dataclass(frozen=True)
class Limits:
    """In points and bytes of a chart."""

    reserved: npt.NDArray[np.int64] | None
    """At most, in the stretch of every point; None where the record has no segments."""
    card: str
    """As `card_label` says."""
    card_bytes: int
    """What an allocator may use of it; -1 where there is none."""
    interval: tuple[int, int] | None
    """Between what the reserved bytes of a predicted peak lie; None where they are one number."""
    refused: tuple[Refused, ...]
    top: int
    """The largest number of bytes to be drawn."""

    @property
    def shows_card(self) -> bool:
        """Whether the card's limit is drawn, and not only named."""
        return 0 <= self.card_bytes <= self.top


def limits_of(record: MemoryRecord, chart: MemoryChart) -> Limits:
    """The limits of ``record``, as its ``chart`` draws them."""
    edges = edges_of(len(record.event_time_us) + 1, chart.num_points)
    reserved = record.reserved() if len(record.segment_bytes) else None
    low, high = record.peak_interval
    interval = (low, high) if record.is_predicted and 0 <= low < high else None
    drawn = max(chart.peak_bytes, chart.reserved_bytes, high if interval else 0, 1)
    near = record.card_bytes <= _FAR * drawn
    return Limits(
        reserved=None if reserved is None else np.maximum.reduceat(reserved, edges),
        card=card_label(record.card),
        card_bytes=record.card_bytes,
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
