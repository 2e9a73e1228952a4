"""The Python call and the line of code that made each node."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from workbench.graph.core.graph_root import COMPILED_TYPE
from workbench.graph.core.source_lines import Place, shows_model_code
from workbench.records.source import source_line
from workbench.torch_private.autograd import forward_class

if TYPE_CHECKING:
    from workbench.graph.core.walk import Walk
    from workbench.graph.forward.forward_trace import TraceResult
    from workbench.records import SourceLine

_T = TypeVar("_T", bound=Hashable)


class Table(Generic[_T]):
    """Distinct values in order of first use."""

    def __init__(self, items: Sequence[_T] = ()) -> None:
        self.items = list(items)
        self._rows = {item: row for row, item in enumerate(self.items)}

    def row(self, item: _T) -> int:
        """Index of ``item``, which is added if it is new."""
        found = self._rows.get(item)
        if found is None:
            found = self._rows[item] = len(self.items)
            self.items.append(item)
        return found

    def rows(self, items: Sequence[_T]) -> npt.NDArray[np.int32]:
        """Index of every item; new items are added."""
        found = self._rows
        rows = [found.setdefault(item, len(found)) for item in items]
        self.items += list(found)[len(self.items) :]
        return np.array(rows, dtype=np.int32)


@dataclass
class Calls:
    """The Python call and the line that made each row."""

    op: list[str]
    number: list[int]
    source: list[int]
    sources: tuple[SourceLine, ...]

    @classmethod
    def of(cls, graph: Walk, types: Sequence[str], trace: TraceResult | None) -> Calls:
        """Find the calls of every row of ``graph``; without a trace, from the nodes alone."""
        size = len(types)
        found = cls([_plain_op(name) for name in types], [-1] * size, [-1] * size, ())
        places = Table[Place]([])
        if trace is not None:
            found._place_traced(graph, trace, places)
        found._place_custom(graph, types, places)
        found.sources = tuple(source_line(*place) for place in places.items)
        return found

    def _place_traced(self, graph: Walk, trace: TraceResult, places: Table[Place]) -> None:
        first = np.array([call.first for call in trace.calls], dtype=np.int64)
        candidate = np.searchsorted(first, graph.sequence, side="right") - 1
        number_of: dict[int, int] = {}
        for row, (at, sequence) in enumerate(
            zip(candidate.tolist(), graph.sequence.tolist(), strict=True)
        ):
            if at < 0 or sequence >= trace.calls[at].last:
                continue
            call = trace.calls[at]
            self.number[row] = number_of.setdefault(at, len(number_of))
            if call.op != _plain_op(COMPILED_TYPE):  # code between two graph breaks is uncompiled
                self.op[row] = call.op
            if call.place is not None:
                self.source[row] = places.row(call.place)

    def _place_custom(self, graph: Walk, types: Sequence[str], places: Table[Place]) -> None:
        """Place custom Functions without a recorded call at the line that defines their forward."""
        for row, node in enumerate(graph.nodes):
            if self.source[row] >= 0 or self.number[row] >= 0:
                continue
            function = forward_class(node)
            code = getattr(getattr(function, "forward", None), "__code__", None)
            if function is None or code is None or types[row] == COMPILED_TYPE:
                continue
            self.op[row] = function.__name__
            if shows_model_code(code.co_filename):
                self.source[row] = places.row((code.co_filename, code.co_firstlineno, "forward"))


@lru_cache(maxsize=1024)
def _plain_op(node_type: str) -> str:
    if node_type == COMPILED_TYPE:
        return "compiled"
    return node_type.rstrip("0123456789").removesuffix("Backward")
