"""Backwards that compiled autograd runs: what is not known is said, and nothing breaks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import compiled_autograd

import workbench as wb

pytestmark = pytest.mark.filterwarnings("ignore:Dynamo")


def compiler(graph):
    return torch.compile(graph, backend="eager")


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_unknown_gradients_are_said_to_be_unknown(classifier, batch):
    with wb.graph(classifier) as view, compiled_autograd._enable(compiler):
        F.cross_entropy(classifier(batch[0]), batch[1]).backward()
    expected = classifier[0].weight.grad
    assert not view.record.gradients
    assert sum("Compiled autograd ran the backward" in note for note in view.record.notes) == 1
    assert "no gradients yet" not in repr(view)
    classifier.zero_grad()
    F.cross_entropy(classifier(batch[0]), batch[1]).backward()
    torch.testing.assert_close(expected, classifier[0].weight.grad)


def test_a_backward_without_it_that_follows_is_measured(classifier, batch):
    loss = F.cross_entropy(classifier(batch[0]), batch[1])
    view = wb.graph(loss)
    with compiled_autograd._enable(compiler):
        loss.backward(retain_graph=True)
    assert not view.record.gradients
    loss.backward()
    assert view.record.gradients
    assert not any("Compiled autograd" in note for note in view.record.notes)


def test_the_compiled_backward_of_another_loss_is_not_ours(classifier, batch):
    x, y = batch
    ours, other = F.cross_entropy(classifier(x), y), classifier(x).sum()
    view = wb.graph(ours)
    with compiled_autograd._enable(compiler):
        other.backward()
    assert not any("Compiled autograd" in note for note in view.record.notes)
    ours.backward()
    assert view.record.gradients


def test_a_step_that_is_compiled_as_a_whole_runs_as_it_would(classifier, batch):
    x, y = batch

    @torch.compile(backend="eager")
    def forward(x):
        return F.cross_entropy(classifier(x), y)

    with wb.graph(classifier) as view:
        forward(x).backward()
    watched = classifier[0].weight.grad.clone()
    classifier.zero_grad()
    forward(x).backward()
    torch.testing.assert_close(watched, classifier[0].weight.grad)
    assert view.record.saved_bytes > 0
