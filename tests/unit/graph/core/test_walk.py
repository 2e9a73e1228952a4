from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import workbench as wb
from workbench.graph.core.graph_root import NoGraphError, root_of
from workbench.graph.core.walk import edge_bytes, read_outputs, walk


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.ones(2), "detached"),
        (lambda: torch.ones(2, requires_grad=True), "leaf"),
        (lambda: torch.tensor(3), "int64"),
        ((torch.ones(2, requires_grad=True) * 2).detach, "detached"),
    ],
)
def test_a_tensor_without_graph_says_why(make, reason):
    with pytest.raises(NoGraphError, match=reason) as caught:
        root_of(make())
    assert "pass the" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_complex_loss_has_a_graph_and_no_number():
    weight = torch.full((4,), 1 + 1j, requires_grad=True)
    view = wb.graph((weight * weight).sum())
    assert view.record.loss is None
    assert {node.dtype for node in view.record.nodes} == {"complex64"}
    assert not view.record.notes


def test_rows_are_topological_and_the_loss_comes_last():
    w = torch.ones(3, requires_grad=True)
    loss = ((w * 2) * (w + 1)).sum()
    graph = walk(loss.grad_fn)
    assert (graph.edge_from < graph.edge_to).all()
    assert graph.nodes[-1] is loss.grad_fn
    assert graph.sequence[0] == -1  # the one leaf, once
    assert (graph.sequence == -1).sum() == 1


def test_the_same_value_used_twice_is_two_edges():
    w = torch.ones(3, requires_grad=True)
    graph = walk((w * w).grad_fn)
    assert graph.edge_from.tolist() == [0, 0]


def test_an_edge_carries_the_output_it_takes():
    small, large = torch.ones(6, requires_grad=True).split([2, 4])
    graph = walk((small.sum() + large.sum()).grad_fn)
    outputs = read_outputs(graph.nodes)
    types = [type(node).__name__ for node in graph.nodes]
    split = next(row for row, name in enumerate(types) if "Split" in name)
    sizes = edge_bytes(graph, outputs)[graph.edge_from == split]
    assert sorted(sizes.tolist()) == [8, 16]


def test_shapes_are_written_as_people_read_them():
    w = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    record = wb.graph((w * 2).sum()).record
    assert [node.shape for node in record.nodes] == ["2×3", "2×3", "scalar"]
    assert record.nodes[0].dtype == "float64"
    assert record.node_output_bytes.tolist() == [48, 48, 8]


def test_an_in_place_operation_on_a_view():
    base = torch.ones(4, 2, requires_grad=True) * 1
    view = base[0]
    view.mul_(3)
    loss = (view + base[1]).sum() + base.sum()
    record = wb.graph(loss).record
    assert "CopySlices" in {node.type for node in record.nodes}
    assert (record.edge_from < record.edge_to).all()
    loss.backward()


def test_a_graph_made_on_several_threads(classifier, batch):
    """Numbers repeat across threads; the order must not be taken from them alone."""
    x, y = batch
    made = []
    thread = threading.Thread(target=lambda: made.append(classifier(x)))
    for _ in range(50):  # this thread's numbers are ahead
        torch.ones(1, requires_grad=True) * 2
    thread.start()
    thread.join()
    record = wb.graph(nn.functional.cross_entropy(made[0], y), model=classifier).record
    assert (record.edge_from < record.edge_to).all()
    assert {node.module for node in record.nodes} >= {"0", "2", "loss"}


def test_autocast_shows_the_casts(classifier, batch):
    x, y = batch
    with wb.graph(classifier), torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(classifier(x), y)
    record = wb.graph(loss).record
    assert "ToCopyBackward0" in {node.type for node in record.nodes}
    linear = [n for n in record.nodes if n.type == "AddmmBackward0"]
    assert {n.dtype for n in linear} == {"bfloat16"}
    assert {n.module for n in linear} == {"0", "2"}
