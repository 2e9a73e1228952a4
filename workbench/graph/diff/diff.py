"""Construction of the `GraphDiff` of two records: align, unite, compare, explain.

Works on records alone, so captures of other steps, other runs and other machines can be compared.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.graph.core.empty_columns import no_bins, no_inner
from workbench.graph.diff.align import align, names_less, names_less_sentence
from workbench.graph.diff.causes import Known, changed_test, explain
from workbench.graph.diff.union import Union
from workbench.records import DIFF_STATES, DiffSide, GraphDiff, RecordError

if TYPE_CHECKING:
    from workbench.records import GraphRecord, NonFinite, Unreached


# The totals of one of two compared captures.


def side_of(record: GraphRecord, root: int) -> DiffSide:
    """The totals of ``record``, whose loss is row ``root`` of the union."""
    kinds = record.node_kind
    return DiffSide(
        title=record.title,
        model=record.model,
        experiment=record.experiment,
        step=record.step,
        loss=record.loss,
        device=record.device,
        torch_version=record.torch_version,
        captured_at=record.captured_at,
        root=root,
        num_operations=int(np.count_nonzero((kinds == 0) | (kinds == 3))),
        num_parameters=int(np.count_nonzero(kinds == 1)),
        saved_bytes=record.saved_bytes,
        parameter_bytes=record.parameter_bytes,
        buffer_bytes=record.buffer_bytes,
        input_bytes=record.input_bytes,
        gradients=record.gradients,
        gradient_norm=_total_norm(record),
    )


def _total_norm(record: GraphRecord) -> float | None:
    """L2 norm over all parameters; None where no gradient arrived or one is not finite."""
    measured = (record.node_kind == 1) & (record.node_gradient_non_finite >= 0)
    norms = record.node_gradient_norm[measured].astype(np.float64)
    total = math.sqrt(float((norms**2).sum()))
    return total if record.gradients and measured.any() and math.isfinite(total) else None


SAME, REMOVED, ADDED, CHANGED = range(len(DIFF_STATES))

_TEXT = ("node_type", "node_shape", "node_dtype")
_NAMES = ("node_op", "node_name")
_NUMBERS = (
    "node_kind",
    "node_output_bytes",
    "node_saved_bytes",
    "node_shared_bytes",
    "node_gradient_norm",
    "node_gradient_max",
    "node_gradient_zeros",
    "node_gradient_non_finite",
)


def diff_records(a: GraphRecord, b: GraphRecord) -> GraphDiff:
    """Compute what changed from ``a`` to ``b``.

    Operations are matched by module path, operation, line and order of calls, parameters by name;
    see `workbench.graph.diff.align`. Near-linear in the number of nodes.

    Raises:
        TypeError: one of them is a diff itself.
        RecordError: an edge of one of them leads nowhere or backwards, as in a damaged file.
    """
    for record in (a, b):
        if isinstance(record, GraphDiff):
            raise TypeError(
                "diff() got a diff; it compares two captures, so give it the two records that this "
                "diff was made from"
            )
        _check_order(record)
    union = Union.of(a, b, align(a, b))
    found = GraphDiff(
        title=f"{a.title} → {b.title}" if a.title != b.title else f"{a.title}: A → B",
        model=a.model if a.model == b.model else f"{a.model} → {b.model}",
        experiment=a.experiment if a.experiment == b.experiment else None,
        step=None,
        loss=None,
        device=a.device if a.device == b.device else f"{a.device} → {b.device}",
        torch_version=b.torch_version,
        captured_at=max(a.captured_at, b.captured_at),
        notes=_notes(a, b),
        strings=union.strings,
        modules=union.modules,
        sources=union.sources,
        a=side_of(a, int(union.row_of_a[a.root])),
        b=side_of(b, int(union.row_of_b[b.root])),
        sentence="",
        cause_source=-1,
        root=int(union.row_of_a[a.root]),
        gradients=a.gradients and b.gradients,
        non_finite=_non_finite(union),
        unreached=_unreached(a, b),
        **_node_columns(union),
        **_edge_columns(union),
        **_hold_columns(union),
        **no_bins(),
        **no_inner(),
        branches=(),
    )
    test, line = changed_test(a, b)
    at = -1 if line is None else found.sources.index(line)
    sentence, source = explain(
        found, Known(_frozen(a), _frozen(b), (test, at), names_less_sentence(a, b))
    )
    return dataclasses.replace(found, sentence=sentence, cause_source=source)


def _check_order(record: GraphRecord) -> None:
    """Check that rows are in forward order, as required; a file may have been written by anyone."""
    start, end = record.edge_from, record.edge_to
    is_forward = (start >= 0) & (start < end) & (end < len(record.node_type))
    if not is_forward.all():
        edge = int(np.flatnonzero(~is_forward)[0])
        raise RecordError(
            f"the record of {record.title!r} is damaged: its edge {edge:,} leads from row "
            f"{start[edge]:,} to row {end[edge]:,} of {len(record.node_type):,}, and every edge "
            "must lead to a later row; capture the graph again"
        )


def _frozen(record: GraphRecord) -> set[str]:
    return {found.name for found in record.unreached if found.reason == "frozen"}


def _node_columns(union: Union) -> dict[str, Any]:
    a, b = union.a, union.b
    columns: dict[str, Any] = {
        name: union.pick(getattr(a, name), getattr(b, name)) for name in _NUMBERS
    }
    for name in _TEXT:
        columns[name] = union.pick(getattr(a, name), union.text_of_b[getattr(b, name)])
    pick = union.pick_b if names_less(a, b) == "A" else union.pick
    for name in _NAMES:
        columns[name] = pick(getattr(a, name), union.text_of_b[getattr(b, name)])
    columns["node_module"] = pick(
        union.module_of_a[a.node_module], union.module_of_b[b.node_module]
    )
    columns["node_source"] = union.pick(a.node_source, union.source_of_b[b.node_source])
    columns["node_call"] = _calls(union)
    rows = np.arange(len(union.node_a))
    columns["node_sequence"] = np.where(np.isin(columns["node_kind"], (1, 2)), -1, rows)
    columns |= {"node_a": union.node_a, "node_b": union.node_b}
    columns |= _columns_of_b(union)
    columns["node_state"] = _states(union, columns)
    return columns


def _columns_of_b(union: Union) -> dict[str, Any]:
    b = union.b
    return {
        "node_shape_b": union.values_of_b(union.text_of_b[b.node_shape], -1),
        "node_dtype_b": union.values_of_b(union.text_of_b[b.node_dtype], -1),
        "node_source_b": union.values_of_b(union.source_of_b[b.node_source], -1),
        "node_saved_bytes_b": union.values_of_b(b.node_saved_bytes, -1),
        "node_shared_bytes_b": union.values_of_b(b.node_shared_bytes, -1),
        "node_gradient_norm_b": union.values_of_b(b.node_gradient_norm, math.nan),
        "node_gradient_non_finite_b": union.values_of_b(b.node_gradient_non_finite, -1),
    }


def _states(union: Union, columns: dict[str, Any]) -> npt.NDArray[np.uint8]:
    type_b = union.values_of_b(union.text_of_b[union.b.node_type], -1)
    held_a = columns["node_saved_bytes"] + columns["node_shared_bytes"]
    held_b = columns["node_saved_bytes_b"] + columns["node_shared_bytes_b"]
    differs = (
        (columns["node_type"] != type_b)
        | (columns["node_shape"] != columns["node_shape_b"])
        | (columns["node_dtype"] != columns["node_dtype_b"])
        | (held_a != held_b)
    )
    states = np.where(differs, CHANGED, SAME).astype(np.uint8)
    states[union.node_b < 0] = REMOVED
    states[union.node_a < 0] = ADDED
    return states


def _calls(union: Union) -> npt.NDArray[np.int64]:
    """Call numbers of A; a node only in B joins the call that its own call was matched to.

    B's call numbers if A has none.
    """
    if names_less(union.a, union.b) == "A":
        return union.pick_b(_dense(union.a.node_call), _dense(union.b.node_call))
    in_a, in_b = union.node_a >= 0, union.node_b >= 0
    calls = np.full(len(in_a), -1, dtype=np.int64)
    calls[in_a] = _dense(union.a.node_call)[union.node_a[in_a]]
    of_b = union.values_of_b(_dense(union.b.node_call), -1)
    shared = in_a & in_b & (of_b >= 0) & (calls >= 0)
    number_of = dict(zip(of_b[shared].tolist(), calls[shared].tolist(), strict=True))
    first_new = int(calls.max(initial=-1)) + 1
    for row in np.flatnonzero(~in_a & (of_b >= 0)).tolist():
        call = int(of_b[row])
        calls[row] = number_of.get(call, first_new + call)
    return calls


def _dense(calls: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Call numbers without gaps, whatever a file contains; -1 is kept."""
    known, found = np.unique(calls, return_inverse=True)
    return found.astype(np.int64) - int((known == -1).sum())


def _edge_columns(union: Union) -> dict[str, Any]:
    edges = union.edges
    states = np.where(edges.bytes_a == edges.bytes_b, SAME, CHANGED)
    states[edges.bytes_b < 0] = REMOVED
    states[edges.bytes_a < 0] = ADDED
    return {
        "edge_from": edges.start,
        "edge_to": edges.end,
        "edge_bytes": np.where(edges.bytes_a < 0, edges.bytes_b, edges.bytes_a),
        "edge_bytes_b": edges.bytes_b,
        "edge_state": states,
    }


def _hold_columns(union: Union) -> dict[str, Any]:
    """The storages held by A's nodes, and those held by the nodes that only B has."""
    a, b = union.a, union.b
    row_of_hold = union.row_of_b[b.hold_node]
    only_b = np.flatnonzero(union.node_a[row_of_hold] < 0)
    storages, new_storage = np.unique(b.hold_storage[only_b], return_inverse=True)
    nodes = np.concatenate([union.row_of_a[a.hold_node], row_of_hold[only_b]])
    order = np.argsort(nodes, kind="stable")
    new_storage = new_storage.reshape(-1) + len(a.storage_bytes)
    saved = union.pick(a.node_saved_bytes, b.node_saved_bytes)
    return {
        "storage_bytes": np.concatenate([a.storage_bytes, b.storage_bytes[storages]]),
        "storage_kind": np.concatenate([a.storage_kind, b.storage_kind[storages]]),
        "hold_node": nodes[order],
        "hold_storage": np.concatenate([a.hold_storage, new_storage])[order],
        "hold_name": np.concatenate([a.hold_name, union.text_of_b[b.hold_name[only_b]]])[order],
        "hold_shape": np.concatenate([a.hold_shape, union.text_of_b[b.hold_shape[only_b]]])[order],
        "saved_bytes": int(saved.sum()),
        "parameter_bytes": max(a.parameter_bytes, b.parameter_bytes),
        "buffer_bytes": max(a.buffer_bytes, b.buffer_bytes),
        "input_bytes": max(a.input_bytes, b.input_bytes),
    }


def _notes(a: GraphRecord, b: GraphRecord) -> tuple[str, ...]:
    both = tuple(note for note in a.notes if note in b.notes)
    only_a = tuple(f"A: {note}" for note in a.notes if note not in both)
    return both + only_a + tuple(f"B: {note}" for note in b.notes if note not in both)


def _non_finite(union: Union) -> NonFinite | None:
    for name, record, rows in (
        ("A", union.a, union.row_of_a),
        ("B", union.b, union.row_of_b),
    ):
        found = record.non_finite
        if found is not None:
            node = int(rows[found.node])
            return dataclasses.replace(found, node=node, text=f"{name}: {found.text}")
    return None


def _unreached(a: GraphRecord, b: GraphRecord) -> tuple[Unreached, ...]:
    """Parameters that neither loss reaches; A's indices of sources stay valid in the union."""
    in_b = {found.name for found in b.unreached}
    return tuple(found for found in a.unreached if found.name in in_b)
