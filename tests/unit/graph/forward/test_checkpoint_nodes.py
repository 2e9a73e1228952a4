"""Parameters inside activation checkpoints: reached through a graph that backward makes, or not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import workbench as wb
from tests.unit.graph.capture.test_missing_gradients import answers, capture, line_of
from tests.unit.graph.graph_exit_cases import Branch
from workbench.graph.questions.why_no_gradient import why_no_gradient


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointed_code_is_no_graph_exit(use_reentrant):
    def checkpointed(self, h, x):
        return h + checkpoint(self.lost, h, use_reentrant=use_reentrant)

    record = capture(Branch(checkpointed))
    assert answers(record) == {}
    assert any("`lost.*`" in note for note in record.notes) == use_reentrant
    if use_reentrant:  # torch hides the inner graph until backward
        answer = why_no_gradient(record, "lost.weight")
        assert "through an activation checkpoint" in answer
        with pytest.raises(ValueError, match=r"no parameter 'lots\.weight'"):
            why_no_gradient(record, "lots.weight")


def test_a_parameter_used_inside_and_outside_a_reentrant_checkpoint_has_a_leaf_and_more():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(checkpoint(self.layer, self.layer(x), use_reentrant=True))

    answer = why_no_gradient(capture(Both()), "layer.weight")
    assert answer.startswith("This loss reaches `layer.weight`")
    assert "inside an activation checkpoint with use_reentrant=True as well" in answer


def test_a_graph_exit_after_a_reentrant_checkpoint_is_named():
    def checkpointed(self, h, x):
        y = checkpoint(nn.Sequential(self.lost, nn.Tanh(), self.lost), h, use_reentrant=True)
        return h + y.detach()  # exit

    record = capture(Branch(checkpointed))
    one = answers(record)["lost.weight"]
    assert (one.reason, line_of(record, one)[-6:]) == ("detached", "# exit")
    assert record.notes == ()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_reentrant_checkpoint_without_an_input_that_requires_grad():
    def checkpointed(self, h, x):
        return h + checkpoint(self.lost, x, use_reentrant=True)

    one = answers(capture(Branch(checkpointed)))["lost.weight"]
    assert one.reason == "no_grad"
    assert "No tensor given to the checkpoint requires grad" in one.text


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_nested_reentrant_checkpoints_and_a_loss_made_in_one():
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.outer, self.inner = (nn.Linear(4, 4) for _ in range(3))

        def part(self, x):
            return checkpoint(self.inner, self.outer(x), use_reentrant=True)

        def forward(self, x):
            return checkpoint(lambda h: self.part(h).sum(), self.stem(x), use_reentrant=True)

    model = Deep()
    with wb.graph(model) as view:
        model(torch.randn(3, 4)).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    record = view.record
    assert record.nodes[record.root].type == "CheckpointFunctionBackward"
    assert record.unreached == ()
    for name in ("outer.weight", "inner.bias"):
        assert "activation checkpoint" in view.why_no_gradient(name)


def test_an_unwatched_reentrant_checkpoint_is_said_to_be_uncertain():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    loss = checkpoint(model[1], model[0](torch.randn(3, 4)), use_reentrant=True).sum()
    found = answers(wb.graph(loss, model=model).record)
    assert set(found) == {"1.weight", "1.bias"}
    assert "may be used inside an activation checkpoint" in found["1.weight"].text
