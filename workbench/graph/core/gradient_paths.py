"""Nodes that pass a gradient on, and nodes that could make a value that is not finite."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from workbench.torch_private.autograd import node_type

if TYPE_CHECKING:
    from workbench.graph.core.walk import Walk

# fmt: off
PASSES_ON = frozenset((
    "Add", "Sub", "Neg", "Alias", "Clone", "View", "UnsafeView", "Reshape", "ReshapeAlias",
    "Permute", "Transpose", "T", "Mt", "Unsqueeze", "Squeeze", "Expand", "Repeat", "Slice",
    "Select", "Split", "SplitWithSizes", "Unbind", "Unfold", "Narrow", "Cat", "Stack", "AsStrided",
    "CopyBackwards", "Detach", "Index", "Gather", "Flip", "Roll",
))
# fmt: on
"""Nodes (without ``Backward0``) that return their incoming gradient in another shape."""
_SAME_VALUES = frozenset(
    ("Add", "Sub", "Alias", "View", "UnsafeView", "ReshapeAlias", "Permute", "Transpose", "T",
     "Mt", "Unsqueeze", "Squeeze")
)  # fmt: skip
"""Those that usually pass on the same memory."""


def slots_to_check(graph: Walk) -> dict[int, list[tuple[int, int]]]:
    """Nodes whose gradients must be checked: row -> (index of the gradient, row of the maker).

    Only where several nodes that could make a value that is not finite pass gradients to the same
    one.
    """
    types = [node_type(node) for node in graph.nodes]
    edges = np.unique(np.stack([graph.edge_from, graph.edge_to], axis=1), axis=0)
    suspect = edges[[not passes_on(types[user]) for user in edges[:, 1].tolist()]]
    num_suspects = np.bincount(suspect[:, 0], minlength=len(types))
    makers: dict[int, list[int]] = defaultdict(list)
    for maker, user in zip(graph.edge_from.tolist(), graph.edge_to.tolist(), strict=True):
        makers[user].append(maker)
    found: dict[int, list[tuple[int, int]]] = {}
    for user in np.unique(suspect[num_suspects[suspect[:, 0]] > 1, 1]).tolist():
        next_nodes = graph.nodes[user].next_functions
        taken = [i for i, (maker, _) in enumerate(next_nodes) if maker is not None]
        slots = zip(taken, makers[user], strict=True)
        found[user] = [(index, maker) for index, maker in slots if num_suspects[maker] > 1]
    return found


def upstream_nodes(graph: Walk) -> dict[int, int]:
    """Row -> its upstream node, if that is the only one and often passes gradients on as is."""
    num_users = np.bincount(graph.edge_from, minlength=len(graph.nodes))
    passes_unchanged = [_plain_name(node_type(node)) in _SAME_VALUES for node in graph.nodes]
    edges = zip(graph.edge_from.tolist(), graph.edge_to.tolist(), strict=True)
    return {
        maker: user for maker, user in edges if passes_unchanged[user] and num_users[maker] == 1
    }


def passes_on(type_name: str) -> bool:
    """Whether a node of this type passes its incoming gradient on, and so makes no new value."""
    return _plain_name(type_name) in PASSES_ON


@lru_cache(maxsize=1024)
def _plain_name(type_name: str) -> str:
    return type_name.rstrip("0123456789").removesuffix("Backward")
