"""The totals of one of two compared captures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from workbench.records import DiffSide

if TYPE_CHECKING:
    from workbench.records import GraphRecord


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
