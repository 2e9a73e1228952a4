"""Two captured graphs, aligned: the union of both, and what each alone holds.

A `GraphDiff` is a `GraphRecord` of the *union* graph, so whatever draws a graph draws a diff. A
node that both captures have is one row, one that only A has is ``removed``, one that only B has is
``added``. The columns of `GraphRecord` hold A's values, and B's for added rows; the columns that
end in ``_b`` hold B's values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workbench.records.base import F32, I32, I64, U8
from workbench.records.graph import GraphRecord

DIFF_STATES = ("same", "removed", "added", "changed")
"""What became of a node or an edge from A to B; ``node_state`` and ``edge_state`` hold the index.
``changed``: in both, with another shape, dtype, type or number of held bytes."""


@dataclass(frozen=True, kw_only=True)
class DiffSide:
    """One of the two captures: what it was of, and its totals."""

    title: str
    model: str
    experiment: str | None
    step: int | None
    loss: float | None
    device: str
    torch_version: str
    captured_at: float
    """Unix time, seconds."""
    root: int
    """Row of its loss in the union."""
    num_operations: int
    num_parameters: int
    """Parameters that its backward reaches."""
    saved_bytes: int
    """What its graph alone keeps alive for backward."""
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    gradients: bool
    """Whether its backward was watched."""
    gradient_norm: float | None
    """L2 norm of the gradients of all its parameters together; None where it was not watched."""


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphDiff(GraphRecord):
    """What changed from capture A to capture B.

    ``title`` names both, ``loss`` and ``step`` are null (see ``a`` and ``b``), ``notes`` say which
    capture they are about, ``unreached`` are the parameters that neither loss reaches, and
    ``root`` is A's loss. ``gradients`` says whether both backwards were watched.
    """

    schema: ClassVar[str] = "workbench.graph_diff/1"

    a: DiffSide
    b: DiffSide
    sentence: str
    """What changed, the cause first where the lines that ran tell it."""
    cause_source: int
    """The line behind the cause, an index into ``sources``; -1 where none is known."""

    node_state: U8
    """Index into `DIFF_STATES`."""
    node_a: I32
    """Row in A, -1 for an added node."""
    node_b: I32
    """Row in B, -1 for a removed node."""
    node_shape_b: I32
    """Index into ``strings``, -1 for a removed node; likewise below."""
    node_dtype_b: I32
    node_source_b: I32
    """Index into ``sources``, -1 where unknown or removed."""
    node_saved_bytes_b: I64
    """Bytes; -1 for a removed node, likewise below."""
    node_shared_bytes_b: I64
    node_gradient_norm_b: F32
    """L2 norm in B; NaN for a removed node and where none was measured."""
    node_gradient_non_finite_b: I64

    edge_state: U8
    """Index into `DIFF_STATES`; ``changed`` where another number of bytes flowed."""
    edge_bytes_b: I64
    """Bytes that flowed in B; -1 for a removed edge."""
