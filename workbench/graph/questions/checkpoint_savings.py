"""Estimate, from a record, of what activation checkpointing of one module would save.

Non-reentrant checkpointing (`torch.utils.checkpoint`) keeps a module's inputs and drops what its
nodes saved; backward runs its forward again. So the storages that only the module's nodes hold are
freed; those that a node outside holds as well stay; and the module's inputs must be kept from now
on if no node outside held them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.graph.capture.module_rows import inside_module, module_row
from workbench.graph.capture.saved_tensors import (
    KEPT_BY_POLICY,
    KEPT_FOR_CHECKPOINT,
    split_by_holder,
)
from workbench.graph.core.number_format import byte_size, duration, plural
from workbench.graph.core.operations import VIEWS, operations_of
from workbench.records import NODE_KINDS, STORAGE_KINDS

if TYPE_CHECKING:
    from workbench.records import GraphRecord

_SLOTS = {"other": 1, "mat2": 1, "vec2": 1, "key": 1, "value": 2, "tensor2": 1}
"""Index of the input that a saved tensor of this name is; the first input for other names."""
_LEAVES = frozenset(NODE_KINDS.index(kind) for kind in ("parameter", "input"))


@dataclass(frozen=True, kw_only=True)
class CheckpointSaving:
    """Effect of checkpointing one module on the memory held for backward, according to a record.

    A record does not know inputs that need no gradient (an attention mask), nor how often a module
    was called: such inputs, and those of each further call, are kept as well, so less is freed. For
    a module that works in place on its input it does not know that both are one storage. A
    container that is not called itself (a `ModuleList`) cannot be checkpointed as one; its
    ``forward_s`` is None in a watched capture.
    """

    module: str
    """Path of the module."""
    num_operations: int
    """Number of operations inside that would be computed again."""
    dropped_bytes: int
    """Bytes of storages that only nodes inside hold."""
    input_bytes: int
    """Bytes of the module's inputs that no node outside holds; they are kept from then on."""
    shared_bytes: int
    """Bytes of storages held inside that stay, because nodes outside hold them as well."""
    forward_s: float | None
    """Seconds that the module's forwards took in the captured step, about the additional time of a
    backward; the cost of the capture is included. None if the forward was not watched."""
    is_checkpointed: bool = False
    """Whether the module's nodes hold only what a non-reentrant checkpoint around them keeps, so
    that there is nothing more to free."""
    has_policy: bool = False
    """Whether it keeps results by a policy (selective activation checkpointing)."""

    @property
    def freed_bytes(self) -> int:
        """Net bytes freed; negative if the inputs are larger than what is dropped."""
        return self.dropped_bytes - self.input_bytes

    @property
    def mode(self) -> str:
        """The mode that checkpoints this module, for ``exp.modes`` and `workbench.modes.Modes`.

        ``""`` for the whole model, which no mode checkpoints as one.
        """
        return f"checkpoint:{self.module}" if self.module else ""

    def __str__(self) -> str:
        name = f"`{self.module}`" if self.module else "the whole model"
        if self.is_checkpointed:
            kept = " and what its policy keeps" if self.has_policy else ""
            return (
                f"{name[0].upper()}{name[1:]} is checkpointed already: its nodes hold nothing but "
                f"what its region was given{kept}, and {plural(self.num_operations, 'operation')} "
                "will be computed again in backward."
            )
        gain = byte_size(abs(self.freed_bytes))
        verb = "would free" if self.freed_bytes >= 0 else "would cost"
        text = f"Checkpointing {name} {verb} {gain}"
        if self.shared_bytes:
            text += f" ({byte_size(self.shared_bytes)} stay, held by nodes outside as well)"
        again = f" and would compute {plural(self.num_operations, 'operation')} again in backward"
        if self.forward_s is not None:
            again += f", about {duration(self.forward_s)} by the captured forward"
        return f"{text}{again}."


def checkpoint_saving(record: GraphRecord, module_path: str) -> CheckpointSaving:
    """Estimate what non-reentrant checkpointing of a module would free.

    Args:
        record: a captured graph, made before backward freed what was saved.
        module_path: qualified name of a module, ``""`` for the whole model.

    Raises:
        TypeError: ``module_path`` is not a string.
        ValueError: the graph has no node of such a module; the message lists close names.
    """
    inside = inside_module(record, module_path)
    dropped, shared = split_by_holder(record, inside)
    row = module_row(record, module_path)
    return CheckpointSaving(
        module=module_path,
        num_operations=len(set(np.array(operations_of(record))[inside & ~_is_leaf(record)])),
        dropped_bytes=int(record.storage_bytes[dropped].sum()),
        input_bytes=_Inputs(record, inside).num_bytes(),
        shared_bytes=int(record.storage_bytes[shared].sum()),
        forward_s=record.modules[row].forward_s,
        is_checkpointed=_is_checkpointed(record, inside),
        has_policy=bool((inside[record.hold_node] & _is_named(record, KEPT_BY_POLICY)).any()),
    )


def _is_checkpointed(record: GraphRecord, inside: npt.NDArray[np.bool_]) -> bool:
    """Whether nodes ``inside`` hold what a region keeps, and nothing else that could be freed."""
    held = inside[record.hold_node]
    kept = _is_named(record, KEPT_FOR_CHECKPOINT, KEPT_BY_POLICY)
    frees = record.storage_kind[record.hold_storage] == STORAGE_KINDS.index("activation")
    return bool((held & kept).any() and not (held & frees & ~kept).any())


def _is_named(record: GraphRecord, *names: str) -> npt.NDArray[np.bool_]:
    """One flag per saved tensor: whether it has one of the names."""
    return np.array([record.strings[row] in names for row in record.hold_name.tolist()], dtype=bool)


def _is_leaf(record: GraphRecord) -> npt.NDArray[np.bool_]:
    return np.isin(record.node_kind, list(_LEAVES))


class _Inputs:
    """The values that flow into a module, and whether nodes outside hold them anyway."""

    def __init__(self, record: GraphRecord, inside: npt.NDArray[np.bool_]) -> None:
        self._record = record
        self._inside = inside
        self._is_leaf = _is_leaf(record)
        self._makers: dict[int, list[int]] = defaultdict(list)
        self._users: dict[int, list[int]] = defaultdict(list)
        for maker, user in record.edges.tolist():
            self._makers[user].append(maker)
            self._users[maker].append(user)
        self._holds: dict[int, list[int]] = defaultdict(list)
        for hold, row in enumerate(record.hold_node.tolist()):
            self._holds[row].append(hold)

    def num_bytes(self) -> int:
        """Bytes of the inputs that only the module would keep."""
        kept: dict[int, int] = {}
        for edge, (maker, user) in enumerate(self._record.edges.tolist()):
            if self._inside[maker] or not self._inside[user]:
                continue
            base = self._base(maker)
            if self._is_leaf[base] or self._held_outside(base):
                continue
            size = int(self._record.edge_bytes[edge])
            if base != maker:  # a view keeps all of its base
                size = int(self._record.node_output_bytes[base])
            kept[base] = max(kept.get(base, 0), size)
        return sum(kept.values())

    def _base(self, row: int) -> int:
        """The node that made the storage of the output of ``row``."""
        while self._is_view(row) and self._makers[row]:
            row = self._makers[row][0]
        return row

    def _is_view(self, row: int) -> bool:
        return self._record.strings[self._record.node_type[row]] in VIEWS

    def _held_outside(self, base: int) -> bool:
        """Whether a node outside holds the output of ``base``."""
        if not self._inside[base] and self._holds_result(base):
            return True
        pending = [base]
        while pending:
            row = pending.pop()
            for user in self._users[row]:
                if self._is_view(user):
                    pending.append(user)
                elif not self._inside[user] and self._holds_input(user, row):
                    return True
        return False

    def _holds_result(self, row: int) -> bool:
        shape = self._record.node_shape[row]
        return any(
            self._name(hold) in {"result", "result0", "output"}
            and self._record.hold_shape[hold] == shape
            for hold in self._holds[row]
        )

    def _holds_input(self, user: int, maker: int) -> bool:
        """Whether ``user`` saved the value it took from ``maker``."""
        shape = self._record.node_shape[maker]
        alike = [other for other in self._makers[user] if self._record.node_shape[other] == shape]
        position = alike.index(maker)
        return any(
            not self._name(hold).startswith("result")
            and self._record.hold_shape[hold] == shape
            and (len(alike) == 1 or _SLOTS.get(self._name(hold), 0) == position)
            for hold in self._holds[user]
        )

    def _name(self, hold: int) -> str:
        return self._record.strings[self._record.hold_name[hold]]
