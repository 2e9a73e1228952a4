"""Captures of six real architectures at their published sizes, held against oracles.

See `tests.models.oracles`: nothing there shares code or method with the capture.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
import torch

import workbench as wb
from tests.models.catalogue import SIX, Case, loss_of
from tests.models.oracles import (
    Expected,
    OwnerOracle,
    Saved,
    names_of,
    recorded,
    saved_by_hooks,
    walk_depth_first,
)
from workbench.graph.capture.record_builder import INFERRED
from workbench.records import STORAGE_KINDS, GraphRecord


@dataclass(frozen=True)
class Captured:
    """One forward of a model, captured, and what the oracles say of the same forward."""

    record: GraphRecord
    expected: Expected
    owner: dict[int, str]
    saved: Saved


def capture(case: Case) -> Captured:
    model, x, y = case.make()
    assert sum(p.numel() for p in model.parameters()) == case.num_parameters
    torch.manual_seed(1)  # dropout: both forwards must save the same
    saved = saved_by_hooks(lambda: loss_of(model, x, y), model, (x, y))
    oracle = OwnerOracle(model)
    torch.manual_seed(1)
    with wb.graph(model):
        loss = loss_of(model, x, y)
    expected = walk_depth_first(loss.grad_fn, names_of(model))
    record = wb.graph(loss).record
    oracle.detach()
    return Captured(record, expected, oracle.owner, saved)


@pytest.fixture(scope="module", params=SIX, ids=str)
def captured(request: pytest.FixtureRequest) -> Captured:
    """One model after the other: pytest groups the tests by it."""
    return capture(request.param)


def operations(record: GraphRecord) -> list[int]:
    return [row for row, node in enumerate(record.nodes) if node.kind == "operation"]


def test_nodes_and_edges_are_those_of_an_independent_walk(captured: Captured) -> None:
    found = recorded(captured.record)
    assert found.nodes == captured.expected.nodes
    assert found.edges == captured.expected.edges
    assert max(found.nodes.values()) == 1
    assert (captured.record.edge_from < captured.record.edge_to).all()
    assert captured.record.root == len(captured.record.node_type) - 1


def test_every_node_is_owned_by_the_module_that_breadth_first_search_finds(
    captured: Captured,
) -> None:
    record, oracle = captured.record, captured.owner
    found = {int(record.node_sequence[row]): record.nodes[row].module for row in operations(record)}
    assert found == {number: oracle.get(number, "loss") for number in found}
    assert record.nodes[record.root].module == "loss"
    assert record.notes == ()


def test_every_parameter_is_a_leaf_of_its_own_module(captured: Captured) -> None:
    leaves = [node for node in captured.record.nodes if node.kind == "parameter"]
    assert Counter(node.name.rpartition(".")[0] for node in leaves) == Counter(
        node.module for node in leaves
    )


def test_every_operation_has_the_line_that_made_it(captured: Captured) -> None:
    record = captured.record
    unknown = [record.nodes[row] for row in operations(record) if record.nodes[row].source is None]
    assert unknown == []
    places = {record.nodes[row].source.filename for row in operations(record)}
    assert all("/tests/models/" in name or "/transformers/" in name for name in places)
    last = record.nodes[record.root]
    assert last.source.text == "return F.cross_entropy(model(x), y)"
    assert last.op == "cross_entropy"


def test_saved_bytes_are_those_that_torch_packs(captured: Captured) -> None:
    record, saved = captured.record, captured.saved
    assert record.saved_bytes == saved.activation
    assert record.parameter_bytes == saved.parameter
    assert record.buffer_bytes == saved.buffer
    assert record.input_bytes == saved.input
    activations = record.storage_kind == STORAGE_KINDS.index("activation")
    assert Counter(record.storage_bytes[activations].tolist()) == Counter(saved.sizes)
    assert record.node_saved_bytes.sum() == record.saved_bytes


@pytest.mark.parametrize(
    "case", [case for case in SIX if case.name in {"ResNet-50", "LSTMCell x 660"}], ids=str
)
def test_inferred_owners_are_close_and_said_to_be_inferred(case: Case) -> None:
    """Without a trace, what uses a parameter is exact; the rest lands in the right container."""
    model, x, y = case.make()
    oracle = OwnerOracle(model)
    loss = loss_of(model, x, y)
    record = wb.graph(loss, model=model).record
    oracle.detach()

    assert record.notes == (INFERRED,)
    users = set(record.edge_to[record.node_kind[record.edge_from] == 1].tolist())
    in_container = 0
    for row in operations(record):
        true = oracle.owner.get(int(record.node_sequence[row]), "loss")
        found = record.nodes[row].module
        assert found == true or row not in users
        in_container += found in {true, true.rpartition(".")[0]}
    assert in_container / len(operations(record)) > 0.9
