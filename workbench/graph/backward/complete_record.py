"""Completion of a record with the gradients that its backward pass gave to every node."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.graph.backward.histogram import usable
from workbench.graph.backward.nonfinite_backward import first_in_backward
from workbench.graph.core.gc_pause import without_collections
from workbench.graph.core.number_format import plural

if TYPE_CHECKING:
    from workbench.graph.backward.gradient_stats import Statistics
    from workbench.graph.backward.gradient_watch import GradientWatch
    from workbench.records import GraphRecord


_COMPILED = (
    "Compiled autograd ran the backward, so the gradient of each node is not known; to see "
    "gradients, capture a step whose backward is not compiled "
    "(torch._dynamo.config.compiled_autograd = False)."
)


@without_collections()
def with_gradients(record: GraphRecord, watch: GradientWatch) -> GraphRecord:
    """Return ``record`` with the gradient columns of the backward pass that ``watch`` observed.

    Args:
        record: a record of the same graph as the watch.
        watch: observer of a backward pass, as far as that has run; a pass that has not begun
            changes nothing. Norms and magnitudes are divided by the scale of its gradient scaler.
    """
    if watch.is_compiled:
        return dataclasses.replace(record, notes=(*record.notes, _COMPILED))
    if not watch.begun:
        faults = _faults(watch)
        return dataclasses.replace(record, notes=(*record.notes, *faults)) if faults else record
    found = watch.statistics()
    columns = _columns(len(record.node_type), found, watch.scale)
    weight = _weight(found.get(record.root)) / watch.scale
    return dataclasses.replace(
        record,
        **columns,
        **_bins(found),
        gradients=True,
        non_finite=record.non_finite or first_in_backward(record, watch),
        notes=(*record.notes, *_notes(record, watch, weight)),
    )


def _weight(loss: Statistics | None) -> float:
    """The gradient of a scalar loss if that is a usable number, else NaN."""
    return math.nan if loss is None or loss.size != 1 else loss.largest


def _columns(size: int, found: dict[int, Statistics], scale: float) -> dict[str, Any]:
    norm, largest, zeros = (np.full(size, np.nan) for _ in range(3))
    non_finite = np.full(size, -1, dtype=np.int64)
    for row, one in found.items():
        norm[row] = one.norm / scale
        largest[row] = one.largest / scale
        zeros[row] = one.zeros / one.size if one.size else np.nan
        non_finite[row] = one.non_finite
    return {
        "node_gradient_norm": _narrow(norm),
        "node_gradient_max": _narrow(largest),
        "node_gradient_zeros": _narrow(zeros),
        "node_gradient_non_finite": non_finite,
    }


def _bins(found: dict[int, Statistics]) -> dict[str, Any]:
    """The histogram columns; magnitudes are already unscaled (see `GradientWatch`)."""
    rows = [
        (row, power, number / one.size)
        for row, one in sorted(found.items())
        for power, number in one.bins
    ]
    node, power, share = zip(*rows, strict=True) if rows else ((), (), ())
    return {
        "bin_node": np.array(node, dtype=np.int32),
        "bin_power": np.array(power, dtype=np.int32),
        "bin_share": np.array(share, dtype=np.float32),
    }


def _narrow(column: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # a norm of float64 gradients may be infinite in float32
        return column.astype(np.float32)


def _notes(record: GraphRecord, watch: GradientWatch, weight: float) -> list[str]:
    """Notes for the record; ``weight`` is the gradient of a scalar loss, without a scale."""
    found: list[str] = []
    num_idle = watch.order().count(-1)
    if not watch.done:
        found.append(
            f"Backward did not run to its end: {plural(num_idle, 'node')} of "
            f"{len(record.node_type):,} did not run."
        )
    elif num_idle:
        found.append(
            f"{plural(num_idle, 'node')} did not run in backward, which computed only "
            "some gradients (torch.autograd.grad, or inputs=)."
        )
    if watch.scale != 1.0:
        found.append(f"Gradients are divided by the gradient scaler's {watch.scale:,.6g}.")
    if usable(weight) == weight and not math.isclose(weight, 1.0, rel_tol=1e-6):
        factor = "" if watch.scale != 1.0 else "a gradient scaler's scale, or "
        found.append(
            "Gradients are as backward computed them: it gave this loss a gradient of "
            f"{weight:,.6g} ({factor}the weight of the loss)."
        )
    return found + _faults(watch)


def _faults(watch: GradientWatch) -> list[str]:
    return [f"Some gradients could not be measured: {fault}" for fault in watch.faults[:3]]
