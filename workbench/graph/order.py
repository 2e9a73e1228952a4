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
