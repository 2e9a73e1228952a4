"""Two captured graphs, aligned: the union of both, and what each alone holds.

A `GraphDiff` is a `GraphRecord` of the *union* graph, so whatever draws a graph draws a diff. A
node that both captures have is one row, one that only A has is ``removed``, one that only B has is
``added``. The columns of `GraphRecord` hold A's values, and B's for added rows; the columns that
end in ``_b`` hold B's values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from workbench.records.base import F32, I32, I64, U8
from workbench.records.graph import GraphRecord
from workbench.records.rules import Index, Least

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
    root: Annotated[int, Index("node")]
    """Row of its loss in the union."""
    num_operations: Annotated[int, Least(0)]
    num_parameters: Annotated[int, Least(0)]
    """Parameters that its backward reaches."""
    saved_bytes: Annotated[int, Least(0)]
    """What its graph alone keeps alive for backward."""
    parameter_bytes: Annotated[int, Least(0)]
    buffer_bytes: Annotated[int, Least(0)]
    input_bytes: Annotated[int, Least(0)]
    gradients: bool
    """Whether its backward was watched."""
    gradient_norm: float | None
    """L2 norm of the gradients of all its parameters together; None where it was not watched, no
    parameter got one, or one is not finite."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GraphDiff(GraphRecord):
    """What changed from capture A to capture B.

    ``title`` names both, ``loss`` and ``step`` are null (see ``a`` and ``b``), ``notes`` say which
    capture they are about, ``unreached`` are the parameters that neither loss reaches, and
    ``root`` is A's loss. ``gradients`` says whether both backwards were watched. Histograms,
    branches and the insides of compiled nodes are left to the captures.
    """

    schema: ClassVar[str] = "workbench.graph_diff/2"

    a: DiffSide
    b: DiffSide
    sentence: str
    """What changed, the cause first where the lines that ran show it."""
    cause_source: Annotated[int, Index("sources", none=True)]
    """The line behind the cause, an index into ``sources``; -1 where none is known."""

    node_state: Annotated[U8, Index(DIFF_STATES)]
    """Index into `DIFF_STATES`."""
    node_a: Annotated[I32, Least(-1)]
    """Row in A, -1 for an added node."""
    node_b: Annotated[I32, Least(-1)]
    """Row in B, -1 for a removed node."""
    node_shape_b: Annotated[I32, Index("strings", none=True)]
    """Index into ``strings``, -1 for a removed node; likewise below."""
    node_dtype_b: Annotated[I32, Index("strings", none=True)]
    node_source_b: Annotated[I32, Index("sources", none=True)]
    """Index into ``sources``, -1 where unknown or removed."""
    node_saved_bytes_b: Annotated[I64, Least(-1)]
    """Bytes; -1 for a removed node, likewise below."""
    node_shared_bytes_b: Annotated[I64, Least(-1)]
    node_gradient_norm_b: F32
    """L2 norm in B; NaN for a removed node and where none was measured."""
    node_gradient_non_finite_b: Annotated[I64, Least(-1)]

    edge_state: Annotated[U8, Index(DIFF_STATES)]
    """Index into `DIFF_STATES`; ``changed`` where another number of bytes flowed."""
    edge_bytes_b: Annotated[I64, Least(-1)]
    """Bytes that flowed in B; -1 for a removed edge."""
