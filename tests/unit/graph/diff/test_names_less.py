"""A capture of a loss alone against one of a whole forward: what both know is compared."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from tests.unit.graph.diff_models import EarlyExit, capture, names, parameters
from workbench.graph.diff.diff import ADDED, CHANGED, REMOVED, diff_records

ALONE = "was captured from a loss alone: modules by their parameters, no source lines."


def of_loss_alone(model, x):
    y = torch.zeros(x.shape[0], dtype=torch.long)
    return wb.graph(sum(F.cross_entropy(out, y) for out in model(x)), model=model).record


@pytest.fixture
def model():
    torch.manual_seed(0)
    return EarlyExit()


@pytest.mark.parametrize("alone", ["A", "B"])
def test_the_same_graph_is_the_same(model, images, alone):
    records = [capture(model, images), of_loss_alone(model, images)]
    found = diff_records(*(records if alone == "B" else records[::-1]))
    assert not found.node_state.any()
    assert not found.edge_state.any()
    assert found.sentence.startswith("A and B are the same graph: 18 backward nodes")
    assert found.sentence.endswith(f"{alone} {ALONE}")


@pytest.mark.parametrize("alone", ["A", "B"])
def test_modules_and_calls_are_those_of_the_capture_that_knows_them(model, images, alone):
    whole = capture(model, images)
    records = [whole, of_loss_alone(model, images)]
    found = diff_records(*(records if alone == "B" else records[::-1]))
    named = {(node.module, node.op) for node in found.nodes}
    assert named == {(node.module, node.op) for node in whole.nodes}
    assert len(set(found.node_call.tolist())) == len(set(whole.node_call.tolist()))


def test_no_line_is_a_cause_where_one_side_has_none(model, images):
    whole = capture(model, images)
    model.early = True
    found = diff_records(whole, of_loss_alone(model, images))
    assert found.sentence.startswith("9 backward nodes, among them all of block2 and head, left")
    assert found.sentence.endswith(f"B {ALONE}")
    assert "line. " not in found.sentence
    assert " ran " not in found.sentence
    assert found.cause_source == -1
    assert names(found, ADDED) == [("", "Div")]
    assert names(found, CHANGED) == []
    assert parameters(found, ADDED) == {"temperature"}
    assert {name.split(".")[0] for name in parameters(found, REMOVED)} == {"block2", "head"}


def test_a_model_that_is_not_held_aligns_by_what_uses_its_parameters():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 3)
    held = [model]
    with wb.graph(model):
        loss = model(x).sum()
    whole = wb.graph(loss).record
    del model
    found = diff_records(whole, wb.graph(held[0](x).sum()).record)
    assert "B was captured from a loss alone: no modules, no source lines" in found.sentence
    assert found.node_state.tolist().count(REMOVED) == 0
    assert found.node_state.tolist().count(ADDED) == 0


def test_two_losses_alone_know_the_same(model, images):
    found = diff_records(of_loss_alone(model, images), of_loss_alone(model, images))
    assert "captured from" not in found.sentence
