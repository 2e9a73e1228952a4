"""Assignment of nodes to the modules that own them.

With a trace: autograd numbers the nodes of a thread in order, and hooks record that number whenever
the innermost running module changes, so the owner of a node is the module that was innermost at its
number. This is exact.

Without a trace: modules are known only from their parameters. An operation that uses a parameter
belongs to the parameter's module; one that does not belongs to the container it most likely ran in
(see `owners_by_parameters`). This is an estimate, and the record says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from workbench.graph.core.walk import Ints, Walk
    from workbench.records import GraphModule

NOWHERE = -1
"""The owner is not known."""
OUTSIDE = -2
"""Owned by no module: the loss function and the code around the model."""

_NLL = frozenset({"NllLossBackward0", "NllLoss2DBackward0", "NllLossNdBackward0"})
_CRITERIA = _NLL | frozenset(
    {
        "CrossEntropyLossBackward0",
        "MseLossBackward0",
        "SmoothL1LossBackward0",
        "HuberLossBackward0",
        "BinaryCrossEntropyBackward0",
        "BinaryCrossEntropyWithLogitsBackward0",
        "KlDivBackward0",
        "SoftMarginLossBackward0",
        "MultiMarginLossBackward0",
        "MultilabelMarginLossBackward0",
        "CtcLossBackward0",
    }
)

_RELAYS = frozenset(
    f"{name}Backward0"
    for name in ("T", "Transpose", "Permute", "View", "UnsafeView", "Expand", "ToCopy", "Unsqueeze")
)
"""Operations that pass on a parameter in another shape or dtype."""


def owners_by_sequence(sequence: Ints, at: Sequence[int], owner: Sequence[int]) -> Ints:
    """Owner of every sequence number.

    Args:
        sequence: sequence number per row, -1 for leaves.
        at: sequence numbers at which the innermost module changed, ascending.
        owner: the innermost module from each of these numbers on.

    Returns:
        Per row an entry of ``owner``, or `NOWHERE` for leaves and for nodes made before ``at[0]``.
    """
    found = np.full(len(sequence), NOWHERE, dtype=np.int64)
    if not at:
        return found
    change = np.searchsorted(np.asarray(at), sequence, side="right") - 1
    known = (sequence >= 0) & (change >= 0)
    found[known] = np.asarray(owner)[change[known]]
    return found


def owners_by_parameters(
    graph: Walk, types: Sequence[str], leaf_owner: Ints, modules: Sequence[GraphModule]
) -> Ints:
    """Estimate owners from the parameters alone, in one pass in forward order.

    An operation that uses a parameter, directly or through a transpose, a view or a cast, belongs
    to the parameter's module. Any other operation belongs to the smallest container of the
    operations whose results only it consumes; a skip connection's value was consumed before, so it
    does not count. Loss functions known by their node, and what follows them, are outside.

    Args:
        graph: rows in forward order.
        types: node type of every row.
        leaf_owner: per row the module of a parameter leaf, else `NOWHERE`.
        modules: the table that owners index.
    """
    return _Estimate(graph, types, leaf_owner, modules).run()


class _Estimate:
    def __init__(
        self, graph: Walk, types: Sequence[str], leaf_owner: Ints, modules: Sequence[GraphModule]
    ) -> None:
        self.types = types
        self.tree = ModuleTree(modules)
        self.owner: list[int] = leaf_owner.tolist()
        self.is_leaf: list[bool] = (graph.sequence < 0).tolist()
        self.from_parameters = [owner >= 0 for owner in self.owner]
        """Rows computed from parameters only."""
        self.direct = list(self.from_parameters)
        """Rows that use a parameter."""
        self.outside = _after_criterion(graph, types)
        self.makers: list[list[int]] = [[] for _ in types]
        self.first_user = [len(types)] * len(types)
        for maker, user in zip(graph.edge_from.tolist(), graph.edge_to.tolist(), strict=True):
            self.makers[user].append(maker)
            self.first_user[maker] = min(self.first_user[maker], user)

    def run(self) -> Ints:
        for row in range(len(self.types)):
            if self.is_leaf[row]:
                continue
            if self.outside[row]:
                self.owner[row] = OUTSIDE
            else:
                self._visit(row)
        return np.array(self.owner, dtype=np.int64)

    def _visit(self, row: int) -> None:
        makers = self.makers[row]
        parameters = [m for m in makers if self.from_parameters[m]]
        if parameters:
            self.owner[row] = self.tree.common([self.owner[m] for m in parameters])
            self.direct[row] = True
            is_relay = self.types[row] in _RELAYS
            self.from_parameters[row] = is_relay and len(parameters) == len(makers)
            return
        placed = [m for m in makers if self.owner[m] >= 0]
        fresh = [m for m in placed if self.first_user[m] == row] or placed[-1:]
        if fresh:
            self.owner[row] = self.tree.common([self._container(m) for m in fresh])

    def _container(self, row: int) -> int:
        owner = self.owner[row]
        return self.tree.container(owner) if self.direct[row] else owner


def _after_criterion(graph: Walk, types: Sequence[str]) -> list[bool]:
    outside = [name in _CRITERIA for name in types]
    for maker, user in zip(graph.edge_from.tolist(), graph.edge_to.tolist(), strict=True):
        if outside[maker]:  # edges are sorted by user, so the maker's flag is final here
            outside[user] = True
        elif types[user] in _NLL and types[maker] == "LogSoftmaxBackward0":
            outside[maker] = True  # the two halves of cross_entropy
    return outside


class ModuleTree:
    """Ancestors in the table of modules."""

    def __init__(self, modules: Sequence[GraphModule]) -> None:
        self._parent = [module.parent for module in modules]
        self._depth = [0] * len(modules)
        for row, parent in enumerate(self._parent):
            self._depth[row] = self._depth[parent] + 1 if parent >= 0 else 0

    def container(self, row: int) -> int:
        """The parent, or the module itself at the root."""
        return self._parent[row] if self._parent[row] >= 0 else row

    def common(self, rows: Sequence[int]) -> int:
        """Smallest module that contains all ``rows``; `NOWHERE` where they share no root."""
        found = rows[0]
        for row in rows[1:]:
            found = self._common_pair(found, row)
        return found

    def _common_pair(self, a: int, b: int) -> int:
        while a != b and a >= 0 and b >= 0:
            if self._depth[a] >= self._depth[b]:
                a = self._parent[a]
            else:
                b = self._parent[b]
        return a if a == b else NOWHERE
