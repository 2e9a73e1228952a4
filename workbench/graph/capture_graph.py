"""One capture of a live loss, the same for `wb.graph(loss)`, the ``with`` block and a step."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from workbench.graph.backward.gradient_watch import GradientWatch
from workbench.graph.backward.nonfinite_forward import with_forward_trail
from workbench.graph.capture.record_builder import Origin, build_record, with_notes
from workbench.graph.core.batch_size import held_batch_size
from workbench.torch_private.self_check import notes_of

if TYPE_CHECKING:
    import torch
    from torch.amp import GradScaler

    from workbench.graph.core.walk import Walk
    from workbench.records import GraphRecord


class CapturedGraph(NamedTuple):
    """A graph, and what watches its backward."""

    record: GraphRecord
    watch: GradientWatch | None
    """None if gradients are not to be measured."""


def capture_graph(
    loss: torch.Tensor,
    graph: Walk,
    origin: Origin,
    *,
    gradients: bool,
    num_samples: int | Literal["held"] | None = "held",
    scale: float | None = None,
    scalers: Sequence[weakref.ref[GradScaler]] = (),
    notes: Sequence[str] = (),
) -> CapturedGraph:
    """Record the graph of ``loss`` while its saved tensors exist, and watch the next backward.

    Args:
        loss: the loss, before a gradient scaler multiplied it.
        graph: the walk of its graph.
        origin: what is known about it.
        gradients: whether to put hooks on the nodes, until the backward has run.
        num_samples: number of samples in the batch, None if it is unknown; by default what the
            inputs that the graph holds show.
        scale: the factor by which a gradient scaler multiplied the loss, if it is known.
        scalers: gradient scalers that the caller holds.
        notes: further notes of the record.
    """
    record = with_notes(build_record(loss, origin, graph=graph), *notes, *notes_of("graphs"))
    rows = held_batch_size(record) if num_samples == "held" else num_samples
    record = with_forward_trail(record, graph, loss, rows)
    watch = GradientWatch(graph, rows, scale=scale, scalers=scalers) if gradients else None
    return CapturedGraph(record, watch)
