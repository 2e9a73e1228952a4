"""Which cards the static picture shows, and where: shared by the SVG and the figure.

A card is a module, a run of equal sibling modules, or a run of operations that a shown module does
itself between its children. The largest modules are opened first until the picture is full, so it
has the same size for ten operations and for ten thousand. Cards are layered by longest path; a
value that skips layers travels in a lane at the right, never across a card.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.wording import plural, short

if TYPE_CHECKING:
    from workbench.records import GraphRecord

MAX_CARDS = 20
MAX_LINKS = 60
CARD_WIDTH, CARD_HEIGHT = 190, 38
COLUMN, ROW, LANE, MARGIN = 214, 62, 12, 16
_MAX_DETAIL = 29
"""Characters that fit in a card's second line."""
_MIN_RUN = 3
"""Fewer equal siblings than this are shown one by one."""

_MOST_CALLS = 4
"""A module called more often than this is a loop: one card."""

_Key = tuple[str, int, int]
"""What a node is drawn in: ("module", first module of the run) or ("own", number of the run), and
which call of it."""


@dataclass
class Card:
    """One box. Coordinates are of its top left corner, in px."""

    label: str
    detail: str
    saved_bytes: int = 0
    num_ops: int = 0
    repeats: bool = False
    """Whether a value comes back to it from a later card: a loop in Python."""
    rank: int = 0
    x: float = 0
    y: float = 0


@dataclass(frozen=True)
class Link:
    """Values that flow from one card to another."""

    start: int
    end: int
    num_bytes: int
    lane: int = -1
    """Lane at the right for a value that skips layers, -1 for neighbours."""


@dataclass
class Layout:
    """Cards and links with their places."""

    cards: list[Card] = field(default_factory=list[Card])
    links: list[Link] = field(default_factory=list[Link])
    width: float = 0
    height: float = 0

    @property
    def max_bytes(self) -> int:
        """Largest bytes of a card, at least 1."""
        return max([1, *(card.saved_bytes for card in self.cards)])

    @property
    def max_flow(self) -> int:
        """Largest bytes of a link, at least 1."""
        return max([1, *(link.num_bytes for link in self.links)])

    def route(self, link: Link) -> list[tuple[float, float]]:
        """Corner points of a link, from below its start to above its end."""
        start, end = self.cards[link.start], self.cards[link.end]
        x0, y0 = start.x + CARD_WIDTH / 2, start.y + CARD_HEIGHT
        x1, y1 = end.x + CARD_WIDTH / 2, end.y
        if link.lane < 0:
            middle = (y0 + y1) / 2
            return [(x0, y0), (x0, middle), (x1, middle), (x1, y1)]
        right = max(card.x for card in self.cards) + CARD_WIDTH + LANE * (link.lane + 1)
        return [(x0, y0), (x0, y0 + 7), (right, y0 + 7), (right, y1 - 9), (x1, y1 - 9), (x1, y1)]


def layout(record: GraphRecord) -> Layout:
    """Place the cards of ``record``."""
    groups = _Groups(record)
    rows_of = _calls_apart(record, groups.keys_of_rows())
    result = Layout()
    index: dict[_Key, int] = {}
    for key, rows in rows_of.items():
        index[key] = len(result.cards)
        result.cards.append(groups.card(key, rows))
    _connect(result, record, {row: index[k] for k, rows in rows_of.items() for row in rows})
    _place(result)
    return result


def _calls_apart(record: GraphRecord, keys: list[_Key]) -> dict[_Key, list[int]]:
    """Rows by card; a module that was called again later gets a card for each of its few calls.

    Otherwise a pooling layer that is used twice would lead from the end of the model back to its
    start. A module that a Python loop calls many times stays one card, marked as a loop.
    """
    runs: dict[_Key, list[list[int]]] = defaultdict(list)
    before: _Key | None = None
    for row in np.flatnonzero(_is_operation(record)).tolist():
        if keys[row] != before:
            runs[keys[row]].append([])
        before = keys[row]
        runs[before][-1].append(row)
    again = _called_again(record, keys)
    rows_of: dict[_Key, list[int]] = {}
    for (kind, first, _), parts in runs.items():
        apart = (kind, first, 0) in again and len(parts) <= _MOST_CALLS
        for number, rows in enumerate(parts if apart else [list(chain(*parts))]):
            rows_of[kind, first, number] = rows
    return dict(sorted(rows_of.items(), key=lambda item: item[1][0]))


def _called_again(record: GraphRecord, keys: list[_Key]) -> set[_Key]:
    """Cards that a value reaches from a card which begins later."""
    begins: dict[_Key, int] = {}
    for row in np.flatnonzero(_is_operation(record)).tolist():
        begins.setdefault(keys[row], row)
    edges = zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True)
    return {
        keys[end]
        for start, end in edges
        if keys[start] in begins and begins[keys[start]] > begins[keys[end]]
    }


def _is_operation(record: GraphRecord) -> np.ndarray:
    return (record.node_kind == 0) | (record.node_kind == 3)


class _Groups:
    """Decides which module, or run of equal modules, each operation is drawn in."""

    def __init__(self, record: GraphRecord) -> None:
        self.record = record
        self.children: dict[int, list[int]] = defaultdict(list)
        for row, module in enumerate(record.modules):
            self.children[module.parent].append(row)
        operations = _is_operation(record)
        self.own = np.bincount(record.node_module[operations], minlength=len(record.modules))
        self.total = self.own.copy()
        for row in range(len(record.modules) - 1, -1, -1):  # parents come first in the table
            parent = record.modules[row].parent
            if parent >= 0:
                self.total[parent] += self.total[row]
        self.runs: dict[int, list[int]] = {}
        """First module of a shown run -> all of it."""
        self.opened: set[int] = set()
        self._open()

    def _open(self) -> None:
        for run in self._runs_of(-1):
            self.runs[run[0]] = run
        while True:
            choices = [run[0] for run in self.runs.values() if len(run) == 1]
            choices = [row for row in choices if any(self.total[c] for c in self.children[row])]
            for row in sorted(choices, key=lambda r: -int(self.total[r])):
                inner = self._runs_of(row)
                if self._num_cards(row) + len(self.runs) - 1 + len(inner) <= MAX_CARDS:
                    break
            else:
                return
            del self.runs[row]
            self.opened.add(row)
            self.runs |= {run[0]: run for run in inner}

    def _num_cards(self, row: int) -> int:
        """Cards for operations that opened modules do themselves, if ``row`` were opened too."""
        owner = self.record.node_module[_is_operation(self.record)]
        opened = np.isin(owner, [*self.opened, row])
        changes = np.concatenate([[True], owner[1:] != owner[:-1]])
        return int(np.count_nonzero(opened & changes))

    def _runs_of(self, parent: int) -> list[list[int]]:
        """Children that ran, equal neighbours together."""
        rows = [row for row in self.children[parent] if self.total[row]]
        modules = self.record.modules
        found: list[list[int]] = []
        for _, same in groupby(rows, key=lambda row: (modules[row].cls, int(self.total[row]))):
            run = list(same)
            found += [run] if len(run) >= _MIN_RUN and parent >= 0 else [[row] for row in run]
        return found

    def keys_of_rows(self) -> list[_Key]:
        """Per row of the record what it is drawn in."""
        shown: dict[int, int] = {}
        for first, run in self.runs.items():
            pending = list(run)
            while pending:
                row = pending.pop()
                shown[row] = first
                pending += self.children[row]
        keys: list[_Key] = []
        num_runs, last = 0, -1
        for is_operation, owner in zip(
            _is_operation(self.record).tolist(), self.record.node_module.tolist(), strict=True
        ):
            if is_operation and owner not in shown:
                num_runs += owner != last
            last = owner if is_operation else last
            keys.append(("module", shown[owner], 0) if owner in shown else ("own", num_runs, 0))
        return keys

    def card(self, key: _Key, rows: list[int]) -> Card:
        """The card that stands for ``rows``."""
        record = self.record
        saved = int(record.node_saved_bytes[rows].sum())
        shape = record.strings[record.node_shape[rows[-1]]]
        if key[0] == "module":
            run = self.runs[key[1]]
            label, cls = self._run_label(run), record.modules[run[0]].cls
        else:
            ops = [record.strings[record.node_op[row]] for row in rows]
            label, cls = ", ".join(op for op, _ in groupby(ops)), ""
        count = plural(len(rows), "op")
        detail = " · ".join(part for part in (shape, short(cls, 18), count) if part)
        if len(detail) > _MAX_DETAIL:  # the class is what can be guessed from the name
            detail = f"{short(shape, 20)} · {count}" if shape else count
        return Card(short(label, 22), detail, saved_bytes=saved, num_ops=len(rows))

    def _run_label(self, run: list[int]) -> str:
        path = self.record.modules[run[0]].path or self.record.model
        if len(run) == 1:
            return path
        last = self.record.modules[run[-1]].path.rsplit(".", 1)[-1]
        near = ".".join(path.split(".")[-2:])
        return f"{short(near, 11)}…{short(last, 4)} × {len(run)}"


def _connect(result: Layout, record: GraphRecord, card_of: dict[int, int]) -> None:
    flow: dict[tuple[int, int], int] = defaultdict(int)
    edges = zip(
        record.edge_from.tolist(), record.edge_to.tolist(), record.edge_bytes.tolist(), strict=True
    )
    for start_row, end_row, num_bytes in edges:
        start, end = card_of.get(start_row, -1), card_of[end_row]
        if start < 0 or start == end:
            continue
        if start > end:  # cards are in forward order: only a loop leads back
            result.cards[end].repeats = True
        else:
            flow[start, end] = max(flow[start, end], num_bytes)
    heaviest = sorted(flow.items(), key=lambda item: (item[0][1] - item[0][0], -item[1]))
    result.links = [Link(start, end, size) for (start, end), size in heaviest[:MAX_LINKS]]


def _place(result: Layout) -> None:
    """Rank by longest path, order each rank by where its inputs come from, find lanes."""
    cards = result.cards
    makers: dict[int, list[int]] = defaultdict(list)
    for link in sorted(result.links, key=lambda link: link.end):
        makers[link.end].append(link.start)
    for end in range(len(cards)):
        cards[end].rank = max((cards[start].rank + 1 for start in makers[end]), default=0)
    ranks: dict[int, list[int]] = defaultdict(list)
    for row, card in enumerate(cards):
        ranks[card.rank].append(row)
    widest = max((len(rows) for rows in ranks.values()), default=1)
    centre = MARGIN + widest * COLUMN / 2
    for rank, rows in sorted(ranks.items()):
        rows.sort(key=lambda row: _mean([cards[m].x for m in makers[row]], centre))
        for place, row in enumerate(rows):
            left = centre + (place - len(rows) / 2) * COLUMN
            cards[row].x = left + (COLUMN - CARD_WIDTH) / 2
            cards[row].y = MARGIN + rank * ROW
    result.links, num_lanes = _lanes(result)
    result.width = 2 * MARGIN + widest * COLUMN + num_lanes * LANE
    result.height = 2 * MARGIN + (max(ranks, default=0) + 1) * ROW - (ROW - CARD_HEIGHT)


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _lanes(result: Layout) -> tuple[list[Link], int]:
    """Give every link that skips a rank the innermost lane that is free along its way."""
    busy: list[int] = []
    found: list[Link] = []
    for link in sorted(result.links, key=lambda link: result.cards[link.start].rank):
        first, last = result.cards[link.start].rank, result.cards[link.end].rank
        lane = -1
        if last - first > 1:
            free = (lane for lane, until in enumerate(busy) if until <= first)
            lane = next(free, len(busy))
            busy[lane : lane + 1] = [last]
        found.append(Link(link.start, link.end, link.num_bytes, lane))
    return found, len(busy)
