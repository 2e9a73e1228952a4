"""Layout of the boxes of the static picture and of their links, for the SVG and the figure.

Boxes are layered by longest path; a value that skips layers is drawn in a lane at the right, never
across a box.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.graph.render.module_boxes import Box, boxes_of

if TYPE_CHECKING:
    from workbench.records import GraphRecord

MAX_BOXES = 20
MAX_LINKS = 60
BOX_WIDTH, BOX_HEIGHT = 190, 38
COLUMN, ROW, LANE, MARGIN = 214, 62, 12, 16


@dataclass(frozen=True)
class Link:
    """Values that flow from one box to another."""

    start: int
    end: int
    num_bytes: int
    edges: tuple[int, ...] = ()
    """The edges of the record that it represents."""
    lane: int = -1
    """Lane at the right for a value that skips layers, -1 for neighbours."""


@dataclass
class Layout:
    """Boxes and links with their positions."""

    boxes: list[Box] = field(default_factory=list[Box])
    links: list[Link] = field(default_factory=list[Link])
    width: float = 0
    height: float = 0

    @property
    def max_bytes(self) -> int:
        """Largest number of bytes of a box, at least 1."""
        return max([1, *(box.saved_bytes for box in self.boxes)])

    @property
    def max_flow(self) -> int:
        """Largest number of bytes of a link, at least 1."""
        return max([1, *(link.num_bytes for link in self.links)])

    def route(self, link: Link) -> list[tuple[float, float]]:
        """Corner points of a link, from below its start to above its end."""
        start, end = self.boxes[link.start], self.boxes[link.end]
        x0, y0 = start.x + BOX_WIDTH / 2, start.y + BOX_HEIGHT
        x1, y1 = end.x + BOX_WIDTH / 2, end.y
        if link.lane < 0:
            middle = (y0 + y1) / 2
            return [(x0, y0), (x0, middle), (x1, middle), (x1, y1)]
        right = max(box.x for box in self.boxes) + BOX_WIDTH + LANE * (link.lane + 1)
        return [(x0, y0), (x0, y0 + 7), (right, y0 + 7), (right, y1 - 9), (x1, y1 - 9), (x1, y1)]


def layout(record: GraphRecord) -> Layout:
    """Place the boxes of ``record``."""
    result = Layout(boxes_of(record, MAX_BOXES))
    box_of = {row: index for index, box in enumerate(result.boxes) for row in box.rows}
    _connect(result, record, box_of)
    _place(result)
    return result


def _connect(result: Layout, record: GraphRecord, box_of: dict[int, int]) -> None:
    edges_of: dict[tuple[int, int], list[int]] = defaultdict(list)
    ends = zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True)
    for edge, (start_row, end_row) in enumerate(ends):
        start, end = box_of.get(start_row, -1), box_of.get(end_row, -1)
        if start < 0 or end < 0 or start == end:
            continue
        if start > end:  # boxes are in forward order: only a loop leads back
            result.boxes[end].repeats = True
        else:
            edges_of[start, end].append(edge)
    links = [
        Link(start, end, int(record.edge_bytes[edges].max()), tuple(edges))
        for (start, end), edges in edges_of.items()
    ]
    result.links = sorted(links, key=lambda link: (link.end - link.start, -link.num_bytes))
    del result.links[MAX_LINKS:]


def _place(result: Layout) -> None:
    """Rank by longest path, order each rank by the position of its inputs, find lanes."""
    boxes = result.boxes
    makers: dict[int, list[int]] = defaultdict(list)
    for link in sorted(result.links, key=lambda link: link.end):
        makers[link.end].append(link.start)
    for end in range(len(boxes)):
        boxes[end].rank = max((boxes[start].rank + 1 for start in makers[end]), default=0)
    ranks: dict[int, list[int]] = defaultdict(list)
    for row, box in enumerate(boxes):
        ranks[box.rank].append(row)
    widest = max((len(rows) for rows in ranks.values()), default=1)
    centre = MARGIN + widest * COLUMN / 2
    for rank, rows in sorted(ranks.items()):
        rows.sort(key=lambda row: _mean([boxes[m].x for m in makers[row]], centre))
        for place, row in enumerate(rows):
            left = centre + (place - len(rows) / 2) * COLUMN
            boxes[row].x = left + (COLUMN - BOX_WIDTH) / 2
            boxes[row].y = MARGIN + rank * ROW
    result.links, num_lanes = _lanes(result)
    result.width = 2 * MARGIN + widest * COLUMN + num_lanes * LANE
    result.height = 2 * MARGIN + (max(ranks, default=0) + 1) * ROW - (ROW - BOX_HEIGHT)


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _lanes(result: Layout) -> tuple[list[Link], int]:
    """Give every link that skips a rank the innermost lane that is free along its path."""
    busy: list[int] = []
    found: list[Link] = []
    for link in sorted(result.links, key=lambda link: result.boxes[link.start].rank):
        first, last = result.boxes[link.start].rank, result.boxes[link.end].rank
        lane = -1
        if last - first > 1:
            free = (lane for lane, until in enumerate(busy) if until <= first)
            lane = next(free, len(busy))
            busy[lane : lane + 1] = [last]
        found.append(dataclasses.replace(link, lane=lane))
    return found, len(busy)
