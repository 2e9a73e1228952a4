"""Pairs of nodes given up, so that the union of two graphs has a forward order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.order import Ints, rows_near_cycles
from workbench.graph.subsequence import Pair, increasing

if TYPE_CHECKING:
    from workbench.records import GraphRecord


def break_cycles(a: GraphRecord, b: GraphRecord, partner: Ints) -> None:
    """Give up pairs until the union has no cycle.

    Args:
        a: a graph.
        b: another.
        partner: row of ``b`` for each row of ``a``, -1 where it has none; changed in place.
    """
    size = len(partner)
    merged = size + np.arange(len(b.node_type))
    rows = np.flatnonzero(partner >= 0)
    merged[partner[rows]] = rows
    starts = np.concatenate([a.edge_from.astype(np.int64), merged[b.edge_from]])
    ends = np.concatenate([a.edge_to.astype(np.int64), merged[b.edge_to]])
    near = rows_near_cycles(size + len(b.node_type), starts, ends)
    tangled = [row for row in near.tolist() if row < size and partner[row] >= 0]
    pairs: list[Pair] = [(row, int(partner[row])) for row in tangled]
    partner[tangled] = -1
    for row, place in increasing(pairs):
        partner[row] = place
