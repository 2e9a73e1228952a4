"""A traced forward whose nodes and edges have been checked, for tests of everything else."""

from __future__ import annotations

import workbench as wb
from tests.models.oracles import OwnerOracle, names_of, recorded, walk_depth_first


def operations(record):
    return [node for node in record.nodes if node.kind == "operation"]


def owners(record):
    rows = [row for row, node in enumerate(record.nodes) if node.kind == "operation"]
    return {int(record.node_sequence[row]): record.nodes[row].module for row in rows}


def traced(model, forward):
    """A record of ``forward()``, and the owners that the oracle finds."""
    oracle = OwnerOracle(model)
    with wb.graph(model):
        loss = forward()
    expected = walk_depth_first(loss.grad_fn, names_of(model))
    record = wb.graph(loss).record
    oracle.detach()
    found = recorded(record)
    assert found.nodes == expected.nodes
    assert found.edges == expected.edges
    return record, oracle.owner, loss


def assert_owned_as(record, oracle):
    assert owners(record) == {n: oracle.get(n, "loss") for n in owners(record)}
