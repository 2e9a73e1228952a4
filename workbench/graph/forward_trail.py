"""Which node's output was the first that was not finite, when the loss itself is not.

The forward has run; what can still be seen is what its nodes saved for backward, looked at without
unpacking. A node's output is known where the node saved its result or a later one saved its input.
The outputs of functions of one saved tensor (``log``) and of divisions are computed again from it.
Where outputs in between are not known the sentence says so: it never guesses. All of it happens
only when the loss is not finite.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from workbench.graph.nonfinite import from_parameters_only, place_of, said_of
from workbench.graph.statistics import has_rows, is_finite, non_finite_rows
from workbench.graph.tensor_memory import NoValuesError, has_own_storage
from workbench.graph.torch_private import (
    node_type,
    raw_slots,
    raw_values,
    without_dispatch,
    without_functions,
)
from workbench.graph.torch_private_tensors import has_memory
from workbench.modes.leaves import leaf_of
from workbench.records import NODE_KINDS, NonFinite

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.graph import Node

    from workbench.graph.capture import Walk
    from workbench.records import GraphRecord

_OWN_OUTPUT = ("_raw_saved_result", "_raw_saved_output")
_MADE_INSIDE = (*_OWN_OUTPUT, "_raw_saved_logsumexp", "_raw_saved_log_sumexp")
"""Starts of the names of what a node computed itself (``result1``)."""
_OF_SELF = ("log", "log2", "log10", "log1p", "acos", "asin", "atanh", "acosh", "sinh", "cosh",
            "tan", "erfinv", "lgamma", "digamma")  # fmt: skip
"""Functions of one tensor that save it and can make a value that is not finite."""


def with_forward_trail(
    record: GraphRecord, graph: Walk, loss: Tensor, batch_size: int | None
) -> GraphRecord:
    """``record`` with the first output that was not finite; itself where the loss is finite.

    Args:
        record: of ``graph``, whose backward has not run yet.
        graph: the live nodes.
        loss: what they computed; it is read, which waits for its device.
        batch_size: length of the first dimension of tensors with one row per sample.
    """
    said = "Whether the loss is finite could not be told"
    try:
        with without_functions(), without_dispatch(), torch.no_grad():
            if loss.is_meta or is_finite(loss):
                return record
            said = "The loss is not finite; where it became so could not be told"
            found = _Trail(record, graph, batch_size).find(loss)
    except Exception as error:  # noqa: BLE001 - a second look must not end the user's step
        text = f"{said}: {error}".split("\n", 1)[0]
        return dataclasses.replace(record, notes=(*record.notes, text))
    return dataclasses.replace(record, non_finite=found)


class _Trail:
    def __init__(self, record: GraphRecord, graph: Walk, batch_size: int | None) -> None:
        self._record = record
        self._graph = graph
        self._batch_size = batch_size
        self._row_of = {node: row for row, node in enumerate(graph.nodes)}
        self._finite: dict[int, bool] = {}
        """Rows whose output is known -> whether it is finite."""
        self._rows: dict[int, tuple[int, ...]] = {}
        self._bad_inputs: dict[int, tuple[int, ...]] = {}
        """Rows that hold an input which is not finite -> rows of the batch."""
        self._makers: dict[int, list[int]] = defaultdict(list)
        edges = zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True)
        for maker, user in edges:
            self._makers[user].append(maker)

    def find(self, loss: Tensor) -> NonFinite:
        self._look()
        self._note(self._record.root, loss)
        reached = self._before(self._record.root, lambda row: not self._finite.get(row, False))
        first = min(row for row in reached if row in self._finite)
        inputs = [row for row in self._bad_inputs if row in reached and row <= first]
        if inputs:
            row = min(inputs)
            rows = self._bad_inputs[row]
            return self._answer(row, rows, f"An input of {place_of(self._record, row)} was")
        place = place_of(self._record, first)
        rows = self._rows.get(first, ())
        if self._record.node_kind[first] == NODE_KINDS.index("parameter"):
            return self._answer(first, (), f"The parameter {place} was")
        unknown = sorted(self._before(first, lambda row: row not in self._finite) - {first})
        if not unknown:
            return self._answer(first, rows, f"The output of {place} is the first that was")
        places = list(dict.fromkeys(place_of(self._record, row) for row in unknown))
        named = ", ".join(places[:3])
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        start = f"The output of {place} is the first seen that was"
        return self._answer(first, rows, start, f" (what {named}{more} gave was not saved)")

    def _answer(self, row: int, rows: tuple[int, ...], start: str, end: str = "") -> NonFinite:
        text = f"{start} not finite in forward{said_of(rows)}{end}."
        return NonFinite(node=row, in_forward=True, samples=rows, text=text)

    def _look(self) -> None:
        slots: dict[type, tuple[str, ...]] = {}
        for row, node in enumerate(self._graph.nodes):
            leaf = leaf_of(node)
            if leaf is not None:
                self._note(row, leaf)
            names = slots.setdefault(type(node), raw_slots(type(node)))
            for name, value in _saved(node, names):
                maker = row if name in _OWN_OUTPUT else self._maker(value)
                if maker is not None:
                    self._note(maker, value)
                elif not name.startswith(_MADE_INSIDE) and self._is_bad_input(value):
                    self._bad_inputs.setdefault(row, self._rows_in(row, value))
            again = _again(node, names)
            if again is not None and row not in self._finite:
                self._note(row, again)

    def _maker(self, value: Tensor) -> int | None:
        return None if value.grad_fn is None else self._row_of.get(value.grad_fn)

    def _is_bad_input(self, value: Tensor) -> bool:
        """Whether a saved tensor that nothing in the graph made is not finite."""
        given = value.is_leaf and not value.requires_grad and value.is_floating_point()
        return given and _is_finite(value) is False

    def _note(self, row: int, value: Tensor) -> None:
        if self._finite.get(row) is not None:
            return
        if not (value.is_floating_point() or value.is_complex()):
            return
        finite = _is_finite(value)
        if finite is None:
            return
        self._finite[row] = finite
        if not finite:
            self._rows[row] = self._rows_in(row, value)

    def _rows_in(self, row: int, value: Tensor) -> tuple[int, ...]:
        if not has_rows(value, self._batch_size):
            return ()
        return () if row in from_parameters_only(self._record) else non_finite_rows(value)

    def _before(self, row: int, passes: Callable[[int], bool]) -> set[int]:
        """``row`` and what leads to it through nodes that ``passes`` lets through.

        A value may be infinite on purpose (a mask before a softmax): only one that stayed infinite
        or NaN on its way to the loss counts.
        """
        found = {row}
        pending = [row]
        while pending:
            for maker in self._makers[pending.pop()]:
                if maker not in found and passes(maker):
                    found.add(maker)
                    pending.append(maker)
        return found


def _saved(node: Node, names: tuple[str, ...]) -> Iterator[tuple[str, Tensor]]:
    for name in names:
        for value in raw_values(node, name):
            if isinstance(value, torch.Tensor):
                yield name, value


def _is_finite(value: Tensor) -> bool | None:
    """None where its values cannot be read."""
    try:
        return is_finite(value)
    except NoValuesError:
        return None


def _again(node: Node, names: tuple[str, ...]) -> Tensor | None:
    """The output of ``node`` computed again from what it saved, where that is one cheap call."""
    op = node_type(node).rstrip("0123456789").removesuffix("Backward").lower()
    saved: dict[str, Any] = {
        name.removeprefix("_raw_saved_"): value
        for name, value in _saved(node, names)
        if has_own_storage(value) and has_memory(value)
    }
    if op in _OF_SELF and "self" in saved:
        return getattr(torch, op)(saved["self"].detach())
    if op == "div" and "other" in saved:
        numerator = saved.get("self")
        other = saved["other"].detach()
        return (torch.ones((), device=other.device) if numerator is None else numerator) / other
    return None
