"""Search for the first node whose output was not finite, for a loss that is not finite.

The forward has run; what can still be inspected is what its nodes saved for backward. Values packed
by a hook are not inspected (they may differ, and unpacking would run the hook), nor are values that
were written to since. A node's output is known if the node saved its result or a later node saved
its input; of several outputs, all that are used further on have to be finite. Where no node saved
it, the output of a function of one saved tensor (``log``) or of a division is computed again; a
division whose numerator was not saved shows only that what was divided by zero is not finite. Where
outputs in between are not known, the message says so: it never guesses. All of this happens only
when the loss is not finite.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from workbench.graph.backward.gradient_stats import has_rows, is_finite, non_finite_rows
from workbench.graph.backward.nonfinite_backward import (
    batch_rows_text,
    from_parameters_only,
    place_of,
)
from workbench.graph.core.tensor_memory import NoValuesError, has_own_storage
from workbench.records import NODE_KINDS, NonFinite
from workbench.torch_private.autograd import (
    forward_class,
    node_type,
    output_metadata,
    raw_slots,
    values_as_saved,
    without_dispatch,
    without_functions,
)
from workbench.torch_private.graph_leaves import leaf_of
from workbench.torch_private.tensors import has_memory, output_sizes

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.graph import Node

    from workbench.graph.core.walk import Walk
    from workbench.records import GraphRecord

_MADE_INSIDE = ("_raw_saved_result", "_raw_saved_output", "_raw_saved_logsumexp",
                "_raw_saved_log_sumexp")  # fmt: skip
"""Prefixes of the names of tensors that a node computed itself (``result1``)."""
_OF_SELF = ("log", "log2", "log10", "log1p", "acos", "asin", "atanh", "acosh", "sinh", "cosh",
            "tan", "erfinv", "lgamma", "digamma")  # fmt: skip
"""Functions of one tensor that save it and can make a value that is not finite."""


def with_forward_trail(
    record: GraphRecord, graph: Walk, loss: Tensor, batch_size: int | None
) -> GraphRecord:
    """Return ``record`` with the first non-finite output; unchanged if the loss is finite.

    Args:
        record: a record of ``graph``, whose backward has not run yet.
        graph: the live nodes.
        loss: the tensor that they computed; its value is read, which waits for its device.
        batch_size: length of the first dimension of tensors with one row per sample.
    """
    problem = "Whether the loss is finite could not be determined"
    try:
        with without_functions(), without_dispatch(), torch.no_grad():
            if loss.is_meta or is_finite(loss):
                return record
            problem = "The loss is not finite; where it became so could not be determined"
            found = _Trail(record, graph, batch_size).find(loss)
    except Exception as error:  # noqa: BLE001 - a second look must not end the user's step
        text = f"{problem}: {error}".split("\n", 1)[0]
        return dataclasses.replace(record, notes=(*record.notes, text))
    return dataclasses.replace(record, non_finite=found)


class _Trail:
    def __init__(self, record: GraphRecord, graph: Walk, batch_size: int | None) -> None:
        self._record = record
        self._graph = graph
        self._batch_size = batch_size
        self._row_of = {node: row for row, node in enumerate(graph.nodes)}
        self._finite: dict[int, bool] = {}
        """Row whose outputs are known -> whether all of them are finite."""
        self._finite_outputs: dict[int, set[int]] = defaultdict(set)
        """Row -> its outputs that are known to be finite."""
        self._flowing: dict[int, set[int]] = defaultdict(set)
        """Row -> its outputs that are used in the graph."""
        self._rows: dict[int, tuple[int, ...]] = {}
        self._bad_inputs: dict[int, tuple[int, ...]] = {}
        """Row that holds a non-finite input -> rows of the batch."""
        self._makers: dict[int, list[int]] = defaultdict(list)
        edges = zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True)
        for maker, user in edges:
            self._makers[user].append(maker)
        flows = zip(graph.edge_from.tolist(), graph.edge_output.tolist(), strict=True)
        for maker, output in flows:
            self._flowing[maker].add(output)

    def find(self, loss: Tensor) -> NonFinite:
        self._note(self._record.root, loss)
        self._look()
        self._compute_again()
        reached = self._before(self._record.root, lambda row: not self._finite.get(row, False))
        first = min(row for row in reached if row in self._finite)
        inputs = [row for row in self._bad_inputs if row in reached and row <= first]
        if inputs:
            row = min(inputs)
            place = place_of(self._record, row)
            is_custom = forward_class(self._graph.nodes[row]) is not None  # may save any tensor
            start = f"A tensor that {place} saved was" if is_custom else f"An input of {place} was"
            return self._answer(row, self._bad_inputs[row], start)
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
        text = f"{start} not finite in forward{batch_rows_text(rows)}{end}."
        return NonFinite(node=row, in_forward=True, samples=rows, text=text)

    def _look(self) -> None:
        slots: dict[type, tuple[str, ...]] = {}
        for row, node in enumerate(self._graph.nodes):
            leaf = leaf_of(node)
            if leaf is not None:
                self._note(row, leaf)
            names = slots.setdefault(type(node), raw_slots(type(node)))
            for name, value in _saved(node, names):
                maker = self._maker(value)
                if maker is not None:
                    self._note(maker, value, value.output_nr)
                elif not name.startswith(_MADE_INSIDE) and self._is_bad_input(value):
                    self._bad_inputs.setdefault(row, self._rows_in(row, value))

    def _compute_again(self) -> None:
        """Recompute unknown outputs, after all saved tensors, which take precedence."""
        for row, node in enumerate(self._graph.nodes):
            if row not in self._finite:
                again = _again(node)
                if again is not None:
                    self._note(row, again)

    def _maker(self, value: Tensor) -> int | None:
        return None if value.grad_fn is None else self._row_of.get(value.grad_fn)

    def _is_bad_input(self, value: Tensor) -> bool:
        """Whether a saved tensor that no node of the graph made is not finite."""
        given = value.is_leaf and not value.requires_grad and value.is_floating_point()
        return given and _is_finite(value) is False

    def _note(self, row: int, value: Tensor, output: int = 0) -> None:
        """Note that the node in ``row`` returned ``value`` as that output."""
        if row in self._finite:
            return
        if not (value.is_floating_point() or value.is_complex()):
            return
        finite = _is_finite(value)
        if finite is None:
            return
        if not finite:
            self._finite[row] = False
            self._rows[row] = self._rows_in(row, value)
            return
        self._finite_outputs[row].add(output)
        if self._flowing[row] <= self._finite_outputs[row]:
            self._finite[row] = True

    def _rows_in(self, row: int, value: Tensor) -> tuple[int, ...]:
        if not has_rows(value, self._batch_size):
            return ()
        return () if row in from_parameters_only(self._record) else non_finite_rows(value)

    def _before(self, row: int, passes: Callable[[int], bool]) -> set[int]:
        """``row`` and the rows that lead to it through nodes accepted by ``passes``.

        A value may be infinite on purpose (a mask before a softmax): only one that stayed infinite
        or NaN on its path to the loss counts.
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
        for value in values_as_saved(node, name):
            yield name, value


def _is_finite(value: Tensor) -> bool | None:
    """Whether ``value`` is finite; None if its values cannot be read."""
    try:
        return is_finite(value)
    except NoValuesError:
        return None


def _again(node: Node) -> Tensor | None:
    """Recompute the output of ``node`` from what it saved, if that is one cheap call.

    For a division whose numerator was not saved: NaN where every numerator gives a non-finite
    result, and zeros elsewhere; None if there is no such place.
    """
    op = node_type(node).rstrip("0123456789").removesuffix("Backward").lower()
    if op not in _OF_SELF and op != "div":
        return None
    saved: dict[str, Tensor] = {
        name.removeprefix("_raw_saved_"): value.detach()
        for name, value in _saved(node, raw_slots(type(node)))
        if has_own_storage(value) and has_memory(value)
    }
    if op in _OF_SELF and "self" in saved:
        with torch.autocast(saved["self"].device.type, enabled=False):
            return getattr(torch, op)(saved["self"])
    if op == "div" and "other" in saved:
        if "self" in saved:
            mode = getattr(node, "_saved_rounding_mode", None)
            return torch.div(saved["self"], saved["other"], rounding_mode=mode)
        return _divided_by(saved["other"], node)
    return None


def _divided_by(divisor: Tensor, node: Node) -> Tensor | None:
    is_sure = divisor.isnan() | (divisor == 0)
    shape = output_sizes(output_metadata(node)[0])
    if shape is None or not is_sure.any():
        return None
    return torch.where(is_sure, torch.nan, 0.0).expand(shape)  # for the rows of the batch
