"""How many operations a graph has: as many as its drawing in the browser."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import workbench as wb
from workbench.graph.core.number_format import summary
from workbench.graph.core.operations import num_operations, operations_of


def test_one_call_is_one_operation(batch):
    model = nn.Linear(3, 2)
    with wb.graph(model):
        loss = F.cross_entropy(model(batch[0]), batch[1])
    record = wb.graph(loss).record
    kinds = [node.type for node in record.nodes if node.kind == "operation"]
    assert kinds == ["TBackward0", "AddmmBackward0", "LogSoftmaxBackward0", "NllLossBackward0"]
    assert num_operations(record) == 2  # linear with its transpose, cross_entropy
    assert summary(record).startswith("2 operations, 2 parameters, ")


def test_without_a_trace_a_transposed_parameter_belongs_to_its_product(batch):
    model = nn.Linear(3, 2)
    record = wb.graph(F.cross_entropy(model(batch[0]), batch[1])).record
    by_row = dict(zip([node.type for node in record.nodes], operations_of(record), strict=True))
    assert by_row["TBackward0"] == by_row["AddmmBackward0"]
    assert by_row["AccumulateGrad"] == -1
    assert num_operations(record) == 3


def test_calls_that_feed_each_other_are_taken_apart():
    w = torch.ones(2, requires_grad=True)
    record = wb.graph(w.exp().sin().cos()).record
    rows = [row for row, node in enumerate(record.nodes) if node.kind == "operation"]
    call = record.node_call.copy()
    call[rows] = [0, 1, 0]
    assert num_operations(dataclasses.replace(record, node_call=call)) == 3
    call[rows] = [0, 0, 1]
    tangled = dataclasses.replace(record, node_call=call)
    assert num_operations(tangled) == 2
    assert np.all(np.array(operations_of(tangled))[rows] == [0, 0, 1])


def test_checkpointing_counts_alike(batch):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with wb.graph(model) as view:
        model(batch[0]).sum().backward()
    assert view.checkpoint_saving("").num_operations == 3
    assert "compute 3 operations again" in str(view.checkpoint_saving(""))
