"""A forward order of a graph, and what of it lies on a cycle."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def topological_order(key: Ints, edge_from: Ints, edge_to: Ints) -> Ints:
    """Rows so that every edge leads forward, of the possible ones always that of smallest ``key``.

    Rows that a cycle leads to are left out.
    """
    waiting = np.bincount(edge_to, minlength=len(key)).tolist()
    users: list[list[int]] = [[] for _ in range(len(key))]
    for maker, user in zip(edge_from.tolist(), edge_to.tolist(), strict=True):
        users[maker].append(user)
    ready = [(k, i) for i, k in enumerate(key.tolist()) if not waiting[i]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, row = heapq.heappop(ready)
        order.append(row)
        for user in users[row]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (int(key[user]), user))
    return np.array(order, dtype=np.int64)


def rows_near_cycles(num_rows: int, edge_from: Ints, edge_to: Ints) -> Ints:
    """Rows on a cycle or between two cycles; empty for a graph without one."""
    key = np.zeros(num_rows, dtype=np.int64)
    inside = np.ones(num_rows, dtype=np.bool_)
    inside[topological_order(key, edge_from, edge_to)] = False
    if inside.any():
        inside[topological_order(key, edge_to, edge_from)] = False
    return np.flatnonzero(inside)
