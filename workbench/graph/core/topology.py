"""Forward order of a graph, and the rows of it that are on a cycle."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.graph.core.deep_graph_release import protect
from workbench.torch_private.autograd import node_sequence
from workbench.torch_private.graph_leaves import DEEP, leaf_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node


Ints = npt.NDArray[np.int64]


def topological_order(key: Ints, edge_from: Ints, edge_to: Ints) -> Ints:
    """Rows in an order in which every edge leads forward; smallest ``key`` first where possible.

    Rows on a cycle, or after one, are left out.
    """
    waiting = np.bincount(edge_to, minlength=len(key)).tolist()
    users = edge_to[np.argsort(edge_from, kind="stable")].tolist()
    num_users = np.bincount(edge_from, minlength=len(key))
    first_user = np.concatenate([[0], np.cumsum(num_users)]).tolist()
    keys = key.tolist()
    ready = [(k, i) for i, k in enumerate(keys) if not waiting[i]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, row = heapq.heappop(ready)
        order.append(row)
        for user in users[first_user[row] : first_user[row + 1]]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (keys[user], user))
    return np.array(order, dtype=np.int64)


def rows_near_cycles(num_rows: int, edge_from: Ints, edge_to: Ints) -> Ints:
    """Rows on a cycle or between two cycles; empty for a graph without one."""
    key = np.zeros(num_rows, dtype=np.int64)
    inside = np.ones(num_rows, dtype=np.bool_)
    inside[topological_order(key, edge_from, edge_to)] = False
    if inside.any():
        inside[topological_order(key, edge_to, edge_from)] = False
    return np.flatnonzero(inside)


# Parameters behind given nodes, found in one walk for many starting points.


def parameters_behind(
    starts: Sequence[tuple[Node, int]], parameters: Mapping[int, str]
) -> dict[str, int]:
    """Parameter -> the starts whose graph contains it.

    Args:
        starts: pairs of a node and the number of its start; several nodes may share a number.
        parameters: ``id(parameter)`` -> name.

    Returns:
        Per parameter a number with bit ``n`` set if start ``n`` is computed from the parameter.
    """
    reached: dict[Node, int] = {}
    for node, number in starts:
        reached[node] = reached.get(node, 0) | 1 << number
    order, num_users = _discover(list(reached))
    _protect(len(order), [node for node in reached if not num_users[node]])
    found: dict[str, int] = {}
    ready = [node for node in reached if not num_users[node]]
    while ready:
        node = ready.pop()
        mask = reached[node]
        variable = leaf_of(node)
        name = parameters.get(id(variable)) if variable is not None else None
        if name is not None:
            found[name] = found.get(name, 0) | mask
        for maker, _ in node.next_functions:
            if maker is not None:
                reached[maker] = reached.get(maker, 0) | mask
                num_users[maker] -= 1
                if not num_users[maker]:
                    ready.append(maker)
    return found


def _discover(starts: list[Node]) -> tuple[list[Node], dict[Node, int]]:
    """Every node behind ``starts``, and how many edges lead to it."""
    order = list(starts)
    num_users = dict.fromkeys(starts, 0)
    for node in order:  # grows while it is read: breadth first
        for maker, _ in node.next_functions:
            if maker is None:
                continue
            if maker not in num_users:
                num_users[maker] = 0
                order.append(maker)
            num_users[maker] += 1
    return order, num_users


def _protect(num_nodes: int, tops: Sequence[Node]) -> None:
    """Make a deep graph whose nodes were accessed safe to free.

    `workbench.graph.core.deep_graph_release` says why.

    Each node goes to the release list of the last start that reaches it, so that many starts on one
    deep graph cost no more than one.
    """
    if num_nodes < DEEP:
        return
    taken: set[Node] = set()
    for top in sorted(tops, key=node_sequence, reverse=True):
        nodes = [top]
        for node in nodes:  # grows while it is read
            fresh = {maker for maker, _ in node.next_functions if maker is not None} - taken
            taken |= fresh
            nodes += fresh
        protect([*sorted(nodes[1:], key=node_sequence), top])
