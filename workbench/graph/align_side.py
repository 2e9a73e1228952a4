"""One of two captures as the comparing of both reads it: its Python calls, module by module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.names import is_of_torch

if TYPE_CHECKING:
    from workbench.records import GraphRecord

MOST_ANCESTORS = 4
"""So many of the matched operations nearest before a call tell it from others."""

_OUTSIDE = "outside"
"""Stands for the pseudo-module of code outside every module."""


@dataclass(eq=False)
class Call:
    """One Python call in one module: its nodes in forward order."""

    op: str
    place: Hashable
    file: str
    code: Hashable
    """File and function of its line; None where that is unknown."""
    rows: list[int] = field(default_factory=list[int])
    partner: int = -1
    """Number of the call of the other side."""


class Side:
    """One record, read for aligning; by types and shapes alone where the other names less."""

    def __init__(self, record: GraphRecord, *, by_type: bool = False) -> None:
        self.record = record
        self._by_type = by_type
        text = record.strings
        self.type = [text[i] for i in record.node_type.tolist()]
        self.name = [text[i] for i in record.node_name.tolist()]
        self.module: list[Hashable] = [
            (m.path, m.parent < 0) if m.cls and not by_type else _OUTSIDE for m in record.modules
        ]
        self.module_of: list[int] = record.node_module.tolist()
        self.is_leaf: list[bool] = np.isin(record.node_kind, (1, 2)).tolist()
        self.inputs: list[list[int]] = [[] for _ in self.type]
        for maker, user in zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True):
            self.inputs[user].append(maker)
        self.calls: list[Call] = []
        self.call_of = [-1] * len(self.type)
        self.by_module: dict[Hashable, list[int]] = defaultdict(list)
        """Module -> its calls in forward order."""
        self._read_calls()
        outside = (self.calls[number] for number in self.by_module[_OUTSIDE])
        self._script = {call.code for call in outside} - {None}
        self.ancestors: list[tuple[int, ...]] = []

    def _read_calls(self) -> None:
        record = self.record
        numbers: dict[tuple[int, int], int] = {}
        for row, (module, call) in enumerate(
            zip(self.module_of, record.node_call.tolist(), strict=True)
        ):
            if self.is_leaf[row]:
                continue
            key = (module, call if call >= 0 and not self._by_type else -2 - row)
            number = numbers.setdefault(key, len(self.calls))
            if number == len(self.calls):
                self.calls.append(self._new_call(row))
                self.by_module[self.module[module]].append(number)
            self.calls[number].rows.append(row)
            self.call_of[row] = number

    def _new_call(self, row: int) -> Call:
        if self._by_type:
            shape = self.record.strings[self.record.node_shape[row]]
            return Call(self.type[row], shape, "", None)
        op = self.record.strings[self.record.node_op[row]]
        source = int(self.record.node_source[row])
        if source < 0:
            return Call(op, None, "", None)
        line = self.record.sources[source]
        place = (line.function, line.text.strip() or line.line)
        return Call(op, place, line.filename, (line.filename, line.function))

    def is_called_from(self, call: Call) -> bool:
        """Whether its line is of a script, or of what called a module of torch's."""
        module = self.record.modules[self.module_of[call.rows[0]]]
        return call.code in self._script or is_of_torch(module.cls)

    def outside_inputs(self, call: Call) -> list[int]:
        """Rows that ``call`` takes values from."""
        number = self.call_of[call.rows[0]]
        return [i for row in call.rows for i in self.inputs[row] if self.call_of[i] != number]

    def ancestors_of(self, call: Call) -> tuple[int, ...]:
        """The matched operations nearest before ``call``."""
        found = {a for row in self.outside_inputs(call) for a in self.ancestors[row]}
        return tuple(sorted(found)[-MOST_ANCESTORS:])
