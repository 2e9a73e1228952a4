"""Records that a file may hold though no capture makes them: each is shown, none is a crash."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import workbench as wb
from workbench.graph.questions.why_no_gradient import why_no_gradient
from workbench.graph.render.svg import graph_html
from workbench.records import NODE_KINDS, read_record


def with_large_calls(record):
    return {"node_call": np.where(record.node_call < 0, -1, 2**31 - 1 - record.node_call)}


def with_values_that_flow_into_leaves(record):
    kinds = record.node_kind.copy()
    kinds[len(kinds) // 2 :] = NODE_KINDS.index("parameter")
    return {"node_kind": kinds}


def with_negative_norms(record):
    return {"node_gradient_norm": -record.node_gradient_norm}


@pytest.mark.parametrize(
    "change", [with_large_calls, with_values_that_flow_into_leaves, with_negative_norms]
)
def test_it_is_read_printed_drawn_and_compared(change):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with wb.graph(model) as view:
        model(torch.randn(5, 3)).square().mean().backward()
    strange = dataclasses.replace(view.record, **change(view.record))
    opened = wb.graph(read_record(strange.to_bytes()))
    assert str(opened).startswith("Sequential")
    assert "<svg" in graph_html(opened.record)
    for diff in (opened.diff(view), view.diff(opened)):
        assert str(diff).startswith("A: Sequential")
        assert int(diff.record.node_call.max()) <= len(diff.record.node_call) * 2


def test_without_any_name_the_answer_says_what_is_missing():
    def loss_of_a_model_nobody_holds():
        return nn.Linear(3, 2)(torch.randn(5, 3)).sum()

    with pytest.raises(ValueError, match="captured without its model; pass it"):
        why_no_gradient(wb.graph(loss_of_a_model_nobody_holds()).record, "weight")
