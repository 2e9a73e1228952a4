"""Construction of the `GraphRecord` of a live loss: walk, name, assign owners, count, pack."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.graph.capture.branch_columns import branch_rows
from workbench.graph.capture.call_columns import Calls, Table
from workbench.graph.capture.compiled_regions import Inside
from workbench.graph.capture.missing_gradients import explain, reached_names, unreached_rows
from workbench.graph.capture.saved_tensors import SavedBytes, count_saved
from workbench.graph.core.empty_columns import no_gradients
from workbench.graph.core.gc_pause import without_collections
from workbench.graph.core.graph_root import COMPILED_TYPE, root_of
from workbench.graph.core.model_names import Leaves, ModelNames
from workbench.graph.core.module_owners import (
    NOWHERE,
    OUTSIDE,
    owners_by_parameters,
    owners_by_sequence,
)
from workbench.graph.core.walk import (
    Ints,
    Outputs,
    Walk,
    edge_bytes,
    node_types,
    read_outputs,
    walk,
)
from workbench.graph.forward.checkpoint_nodes import (
    has_reentrant,
    recomputed_names,
    recomputed_notes,
)
from workbench.graph.forward.trace_result import trace_notes
from workbench.records import NODE_KINDS, GraphModule, GraphRecord
from workbench.torch_private.autograd import without_functions

if TYPE_CHECKING:
    import torch
    from torch import nn

    from workbench.graph.forward.trace_result import TraceResult

INFERRED = (
    "Modules were inferred from the parameters, so an operation without any may be listed under a "
    "neighbour, and there are no source lines; run the forward inside `with wb.graph(model):` for "
    "exact ones."
)
NO_MODEL = (
    "No module was found for these parameters, so buffers and frozen weights count as saved; pass "
    "`model=` to name them."
)
ELSEWHERE = (
    "Part of the forward ran on another thread than the capture; what ran there, and what has "
    "the same numbers, was placed by its parameters and has no source lines."
)


@dataclass(frozen=True)
class Origin:
    """Where a loss comes from, apart from its graph."""

    models: Mapping[str, nn.Module]
    """Prefix -> model."""
    trace: TraceResult | None = None
    inputs: Mapping[int, str] | None = None
    """Storage identity -> name of a tensor the caller holds."""
    leaf_names: Mapping[int, str] | None = None
    """``id`` of a leaf tensor that is not a parameter -> its name."""
    experiment: str | None = None
    step: int | None = None


@without_collections()
def build_record(
    loss: torch.Tensor, origin: Origin, *, graph: Walk | None = None, read_loss: bool = True
) -> GraphRecord:
    """Capture the graph of ``loss``. The record keeps no part of it alive.

    Args:
        loss: any tensor that an operation made.
        origin: what is known about it.
        graph: the walk of its graph, if that has been walked already.
        read_loss: whether to read its value, which waits for the device.

    Raises:
        NoGraphError: ``loss`` has no graph.
    """
    with without_functions():  # a tensor subclass may raise when inspected
        return _build_record(loss, origin, graph or walk(root_of(loss)), read_loss=read_loss)


def _build_record(
    loss: torch.Tensor, origin: Origin, graph: Walk, *, read_loss: bool
) -> GraphRecord:
    import torch

    outputs = read_outputs(graph.nodes)
    types = node_types(graph.nodes)
    names = ModelNames.of(origin.models)
    leaves = Leaves.of(graph, names, origin.leaf_names or {})
    saved = count_saved(graph.nodes, _held_anyway(names, leaves, origin))
    watched = graph if origin.trace is None else origin.trace.watched(graph)
    owner, notes = _owners(watched, types, leaves, names, origin.trace)
    seconds = {} if origin.trace is None else origin.trace.seconds()
    inside = Inside.of(graph, types, names, leaves, owner)
    table = _ModuleTable(names.modules, np.append(owner, inside.owner).astype(np.int64), seconds)
    calls = Calls.of(watched, types, origin.trace)
    recomputed = recomputed_names(origin.trace, watched)
    reached = reached_names(leaves, names, owner) | recomputed
    in_doubt = has_reentrant(types)
    missing = explain(names, reached, watched.sequence, origin.trace, has_checkpoint=in_doubt)
    notes += recomputed_notes(names, recomputed)
    unreached, sources = unreached_rows(missing, calls.sources)
    branches = branch_rows(origin.trace, watched.sequence, table.modules, sources)
    strings = Table([""])
    inner, sources = inside.columns(table.rows[len(types) :], strings, branches.sources)
    model = ", ".join(one.cls for one in table.modules if one.parent < 0 and one.cls)
    notes += names.also_notes({module.path for module in table.modules})
    return GraphRecord(
        title=(model or "loss") + ("" if origin.step is None else f", step {origin.step}"),
        model=model,
        experiment=origin.experiment,
        step=origin.step,
        loss=_value(loss) if read_loss else None,
        device=str(loss.device),
        torch_version=str(torch.__version__),
        captured_at=time.time(),
        notes=(
            *notes,
            *outputs.notes(),
            *saved.notes(),
            *trace_notes(origin.trace),
            *branches.notes,
            *inside.notes,
        ),
        modules=table.modules,
        sources=sources,
        node_type=strings.rows(types),
        node_op=strings.rows(calls.op),
        node_kind=_kinds(types, leaves),
        node_module=table.rows[: len(types)],
        node_call=np.array(calls.number, dtype=np.int32),
        node_sequence=graph.sequence,
        node_shape=strings.rows(outputs.shape),
        node_dtype=strings.rows(outputs.dtype),
        node_output_bytes=np.array([size[0] if size else 0 for size in outputs.num_bytes]),
        node_name=strings.rows(leaves.name),
        node_source=np.array(calls.source, dtype=np.int32),
        root=len(types) - 1,
        **_edge_columns(graph, outputs),
        **_saved_columns(saved, strings),
        **no_gradients(len(types)),
        **inner,
        branches=branches.rows,
        unreached=unreached,
        strings=tuple(strings.items),
    )


def with_notes(record: GraphRecord, *notes: str) -> GraphRecord:
    """Return ``record`` with further notes."""
    return dataclasses.replace(record, notes=(*record.notes, *notes)) if notes else record


def _edge_columns(graph: Walk, outputs: Outputs) -> dict[str, Any]:
    return {
        "edge_from": graph.edge_from,
        "edge_to": graph.edge_to,
        "edge_bytes": edge_bytes(graph, outputs),
    }


def _saved_columns(saved: SavedBytes, strings: Table[str]) -> dict[str, Any]:
    holds = saved.holds
    return {
        "storage_bytes": np.array(holds.storage_bytes, dtype=np.int64),
        "storage_kind": np.array(holds.storage_kind, dtype=np.uint8),
        "hold_node": np.array(holds.node, dtype=np.int32),
        "hold_storage": np.array(holds.storage, dtype=np.int32),
        "hold_name": strings.rows(holds.name),
        "hold_shape": strings.rows(holds.shape),
        "node_saved_bytes": np.array(saved.first, dtype=np.int64),
        "node_shared_bytes": np.array(saved.shared, dtype=np.int64),
        "saved_bytes": sum(saved.first),
        **{f"{kind}_bytes": size for kind, size in saved.totals.items()},
    }


def _value(loss: torch.Tensor) -> float | None:
    try:
        is_number = loss.numel() == 1 and not loss.is_complex()
        return float(loss.detach()) if is_number else None
    except Exception:  # noqa: BLE001 - a class of the user's, or a fake tensor: it has no value
        return None


def _held_anyway(names: ModelNames, leaves: Leaves, origin: Origin) -> dict[int, str]:
    held = dict.fromkeys(origin.inputs or {}, "input")
    if origin.trace is not None:
        held |= {ref.cdata: "input" for ref in origin.trace.inputs if not ref.expired()}
    return held | leaves.storages | names.storages


def _owners(
    graph: Walk,
    types: Sequence[str],
    leaves: Leaves,
    names: ModelNames,
    trace: TraceResult | None,
) -> tuple[Ints, list[str]]:
    """Owner of every row, and notes about the owners."""
    if not names.modules:
        unnamed = "parameter" in leaves.kind
        return np.full(len(types), OUTSIDE, np.int64), [NO_MODEL] if unnamed else []
    found = np.full(len(types), NOWHERE, np.int64)
    notes: list[str] = []
    if trace is not None:
        row_of = {module.path: row for row, module in enumerate(names.modules)}
        known = [row_of.get(trace.paths[o], 0) if o >= 0 else OUTSIDE for o in trace.owner]
        found = owners_by_sequence(graph.sequence, trace.owner_at, known)
        found[graph.sequence >= trace.last] = NOWHERE
    is_operation = graph.sequence >= 0
    missing = is_operation & (found == NOWHERE)
    if missing.any():
        estimate = owners_by_parameters(graph, types, leaves.owner, names.modules)
        found[missing] = estimate[missing]
        found[is_operation & (found == NOWHERE)] = OUTSIDE
        notes.append(ELSEWHERE if trace is not None and trace.ran_elsewhere else INFERRED)
    leaves.place(found, graph)
    return found, notes


class _ModuleTable:
    """The modules that own rows, their ancestors, and the loss; rows renumbered."""

    def __init__(
        self, modules: Sequence[GraphModule], owner: Ints, seconds: Mapping[str, float]
    ) -> None:
        used: set[int] = set()
        for row in np.unique(owner[owner >= 0]).tolist():
            while row >= 0 and row not in used:
                used.add(row)
                row = modules[row].parent  # noqa: PLW2901 - climbing
        new_row = {old: new for new, old in enumerate(sorted(used))}
        kept = [modules[old] for old in sorted(used)]
        table = [
            GraphModule(
                path=module.path,
                cls=module.cls,
                parent=new_row.get(module.parent, -1),
                forward_s=seconds.get(module.path),
            )
            for module in kept
        ]
        if (owner < 0).any():
            new_row[OUTSIDE] = len(table)
            table.append(GraphModule(path="loss", cls="", parent=-1, forward_s=None))
        self.modules = tuple(table)
        self.rows = np.array([new_row[row] for row in owner.tolist()], dtype=np.int32)


def _kinds(types: Sequence[str], leaves: Leaves) -> npt.NDArray[np.uint8]:
    kinds = [
        NODE_KINDS.index(kind or ("compiled" if name == COMPILED_TYPE else "operation"))
        for name, kind in zip(types, leaves.kind, strict=True)
    ]
    return np.array(kinds, dtype=np.uint8)
