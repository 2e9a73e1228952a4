"""The autograd graph of one loss, as plain columns.

Rows are backward nodes (``grad_fn`` objects) in a topological order in which the loss comes last.
Edges follow the data: ``edge_from`` made a value that ``edge_to`` consumed; gradients run back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from workbench.records.base import F32, I32, I64, U8, Record
from workbench.records.rules import After, Ascending, Index, Least
from workbench.records.source import SourceLine

NODE_KINDS = ("operation", "parameter", "input", "compiled")
"""What a node is; ``node_kind`` holds the index. ``parameter`` and ``input`` are leaves."""

STORAGE_KINDS = ("activation", "parameter", "buffer", "input")
"""What a storage that a node holds is; ``storage_kind`` holds the index. Only activations would be
freed with the graph."""

INNER_ENDS = ("inside", "takes", "gives", "both")
"""Whether an operation inside a compiled node takes a gradient that comes into the node, gives one
that leaves it, or both; ``inner_ends`` holds the index."""

UnreachedReason = Literal[
    "frozen", "unused", "detached", "no_grad", "not_differentiable", "off_path"
]
"""``frozen``: it does not require grad. ``unused``: no operation took it. ``detached``: `detach` or
``.data`` cut what was computed from it. ``no_grad``: it was used where gradients are off.
``not_differentiable``: an operation without a gradient (argmax, a cast to integers) cut it.
``off_path``: what was computed from it never reaches this loss."""


@dataclass(frozen=True, kw_only=True)
class Unreached:
    """A parameter that gets no gradient from this loss, and why."""

    name: str
    """Qualified (``encoder.layer.3.weight``)."""
    reason: UnreachedReason
    text: str
    """One sentence that names the cut."""
    source: Annotated[int, Index("sources", none=True)]
    """Line of the cut, an index into `GraphRecord.sources`; -1 where there is none."""

    def __str__(self) -> str:
        return self.text

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """What a notebook shows of it as the value of a cell."""
        printer.text(self.text)


@dataclass(frozen=True, kw_only=True)
class NonFinite:
    """The first node, in the order of backward, that made a NaN or an infinity."""

    node: Annotated[int, Index("node")]
    """Row of the node; a gradient that was made in its backward is not finite."""
    in_forward: bool
    """Whether the loss itself was not finite: then the node is the first whose *output* was not."""
    samples: tuple[int, ...]
    """Rows of the batch whose values are not finite, at most 64; empty where unknown."""
    text: str
    """One sentence."""


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A Python ``if`` or ``while`` that read a tensor, and so chose what the graph became.

    No gradient flows through it; it says why these nodes are there and others are not.
    """

    condition: str
    """Its test as it is written (``sure > self.threshold``); empty where the code is not there."""
    values: str
    """The same with the numbers that were compared (``0.730 > 0.750``); empty where unknown."""
    taken: bool
    """What the test came to."""
    module: Annotated[int, Index("modules", none=True)]
    """The module that read it."""
    source: Annotated[int, Index("sources", none=True)]
    before: Annotated[int, Index("node", none=True)]
    """The node that made what was tested; -1 where that is none of this graph."""
    after: Annotated[int, Index("node", none=True)]
    """The first node of this graph that was made after the test; -1 where there is none."""


@dataclass(frozen=True, kw_only=True)
class GraphModule:
    """A module that owns nodes. ``parent`` is an index into `GraphRecord.modules`, -1 for the root.

    Parents come before their children. ``path`` is the qualified name (``encoder.layer.3``); the
    root's is ``""`` and code outside every module (the loss function) is the pseudo-module with
    ``path="loss"``, ``cls=""``, ``parent=-1``.
    """

    path: str
    cls: str
    parent: Annotated[int, Index("modules", none=True, earlier=True)]
    forward_s: float | None
    """Seconds its forwards took in the captured step, all it contains included (host time, the
    cost of the capture included); None where they were not watched."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GraphRecord(Record):
    """Every backward node of one loss. All ``node_*`` columns have one row per node.

    ``strings`` is the table that ``node_type``, ``node_op``, ``node_shape``, ``node_dtype`` and
    ``node_name`` index into. Bytes are of *storages*, counted once: ``node_saved_bytes`` is what
    this node is the first (in forward order) to hold, ``node_shared_bytes`` what it holds that an
    earlier node already held. Parameters, buffers and inputs are counted in the ``*_bytes``
    totals only.
    """

    schema: ClassVar[str] = "workbench.graph/3"
    tables: ClassVar[tuple[str, ...]] = (
        "node", "edge", "storage", "hold", "bin", "inner", "link"
    )  # fmt: skip

    title: str
    model: str
    experiment: str | None
    step: int | None
    loss: float | None
    device: str
    torch_version: str
    captured_at: float
    """Unix time, seconds."""
    notes: tuple[str, ...]
    """What this capture could not know and why, one sentence each; empty when complete."""

    strings: tuple[str, ...]
    modules: tuple[GraphModule, ...]
    sources: tuple[SourceLine, ...]

    node_type: Annotated[I32, Index("strings")]
    """``NativeBatchNormBackward0``"""
    node_op: Annotated[I32, Index("strings")]
    """The user-facing call (``batch_norm``); the type without ``Backward0`` where unknown."""
    node_kind: Annotated[U8, Index(NODE_KINDS)]
    """Index into `NODE_KINDS`."""
    node_module: Annotated[I32, Index("modules")]
    """Index into ``modules``."""
    node_call: Annotated[I32, Least(-1)]
    """Nodes made by one Python call share a number; -1 where unknown."""
    node_sequence: Annotated[I64, Least(-1)]
    """Autograd sequence number (forward order within a thread); -1 for leaves."""
    node_shape: Annotated[I32, Index("strings")]
    """Shape of the forward output, ``128×64×16×16``; ``scalar`` for ``[]``."""
    node_dtype: Annotated[I32, Index("strings")]
    """``float32``"""
    node_output_bytes: Annotated[I64, Least(0)]
    """Bytes of its forward output, of the first one where there are several."""
    node_name: Annotated[I32, Index("strings")]
    """A leaf's qualified parameter name; ``""`` for operations."""
    node_source: Annotated[I32, Index("sources", none=True)]
    """Index into ``sources``, -1 where unknown."""
    node_saved_bytes: Annotated[I64, Least(0)]
    node_shared_bytes: Annotated[I64, Least(0)]

    edge_from: Annotated[I32, Index("node")]
    edge_to: Annotated[I32, Index("node"), After("edge_from")]
    edge_bytes: Annotated[I64, Least(0)]
    """Bytes of the value that flowed along the edge."""

    storage_bytes: Annotated[I64, Least(0)]
    """One row per storage that some node holds for backward."""
    storage_kind: Annotated[U8, Index(STORAGE_KINDS)]
    """Index into `STORAGE_KINDS`."""
    hold_node: Annotated[I32, Index("node"), Ascending()]
    """One row per saved tensor: the node that holds it, ascending."""
    hold_storage: Annotated[I32, Index("storage")]
    """Index into the ``storage_*`` columns."""
    hold_name: Annotated[I32, Index("strings")]
    """torch's name of the saved tensor (``input``, ``weight``, ``result1``)."""
    hold_shape: Annotated[I32, Index("strings")]

    node_gradient_norm: F32
    """L2 norm of the gradient of the node's output; for a leaf, of what backward gave it. NaN where
    none arrived or none was measured."""
    node_gradient_max: F32
    """Largest magnitude in it; NaN likewise."""
    node_gradient_zeros: F32
    """Share of zeros in it, 0 to 1, NaN likewise; on the CPU an estimate from about 4,096 evenly
    spaced values where it has more than 8,192 (standard error at most 0.008)."""
    node_gradient_non_finite: Annotated[I64, Least(-1)]
    """Number of NaN and infinite values in it; -1 where none was measured."""
    bin_node: Annotated[I32, Index("node"), Ascending()]
    """The histogram of each measured gradient, one row per power of ten that occurs in it; of the
    same values as ``node_gradient_zeros``."""
    bin_power: I32
    """Magnitudes from ``10**power`` up to, not including, ``10**(power + 1)``."""
    bin_share: F32
    """Share of all values of the gradient, zeros included, that are there, above 0 up to 1."""
    gradients: bool
    """Whether backward was watched: only then do the ``node_gradient_*`` columns say anything."""
    non_finite: NonFinite | None
    unreached: tuple[Unreached, ...]
    """Parameters of the model that this loss does not reach, in the model's order."""

    branches: tuple[Branch, ...]
    """What Python read of tensors in the forward, in that order."""

    inner_node: Annotated[I32, Index("node"), Ascending()]
    """One row per operation of the backward graph that AOTAutograd made for a compiled node, in the
    order in which backward runs them: the node. No rows where that graph is not to be had."""
    inner_op: Annotated[I32, Index("strings")]
    """``convolution_backward``"""
    inner_module: Annotated[I32, Index("modules")]
    """The module whose forward it is the backward of; the compiled node's own where unknown."""
    inner_shape: Annotated[I32, Index("strings")]
    inner_dtype: Annotated[I32, Index("strings")]
    inner_source: Annotated[I32, Index("sources", none=True)]
    """The line of the forward."""
    inner_ends: Annotated[U8, Index(INNER_ENDS)]
    """Index into `INNER_ENDS`."""
    link_from: Annotated[I32, Index("inner")]
    """One row per value that one of them hands to another, in the direction of backward."""
    link_to: Annotated[I32, Index("inner"), After("link_from")]

    root: Annotated[int, Index("node")]
    """Row of the loss."""
    saved_bytes: Annotated[int, Least(0)]
    """Sum of ``node_saved_bytes``: what the graph alone keeps alive for backward."""
    parameter_bytes: Annotated[int, Least(0)]
    """Bytes of parameters that nodes hold, each storage once; they live anyway. Likewise below."""
    buffer_bytes: Annotated[int, Least(0)]
    input_bytes: Annotated[int, Least(0)]

    @cached_property
    def nodes(self) -> tuple[GraphNode, ...]:
        """The rows as objects."""
        return tuple(GraphNode.of(self, row) for row in range(len(self.node_type)))

    @cached_property
    def edges(self) -> npt.NDArray[np.int32]:
        """``[num_edges, 2]``: (from, to) in data direction."""
        return np.stack([self.edge_from, self.edge_to], axis=1)


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """One row of a `GraphRecord`, for reading in Python."""

    index: int
    type: str
    op: str
    kind: str
    module: str
    shape: str
    dtype: str
    name: str
    source: SourceLine | None
    saved_bytes: int
    shared_bytes: int
    gradient_norm: float | None
    """None where no gradient arrived or none was measured."""

    @classmethod
    def of(cls, record: GraphRecord, row: int) -> GraphNode:
        """The row ``row`` of ``record``."""
        text = record.strings
        source = int(record.node_source[row])
        norm = float(record.node_gradient_norm[row])
        known = math.isfinite(norm) or record.node_gradient_non_finite[row] > 0
        return cls(
            index=row,
            type=text[record.node_type[row]],
            op=text[record.node_op[row]],
            kind=NODE_KINDS[record.node_kind[row]],
            module=record.modules[record.node_module[row]].path,
            shape=text[record.node_shape[row]],
            dtype=text[record.node_dtype[row]],
            name=text[record.node_name[row]],
            source=record.sources[source] if source >= 0 else None,
            saved_bytes=int(record.node_saved_bytes[row]),
            shared_bytes=int(record.node_shared_bytes[row]),
            gradient_norm=norm if known else None,
        )
