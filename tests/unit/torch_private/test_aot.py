"""Fails when AOTAutograd moves one of the corners that `aot.py` wraps."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from tests.unit.graph.compiled_models import Oracle, Words, calls, loss_of, ops
from workbench.graph.capture.compiled_backward import (
    BackwardGraph,
    is_operation,
    plain_graph,
    read_code,
    read_graph,
)
from workbench.torch_private import aot


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def region(loss):
    """The compiled node behind a loss."""
    node = loss.grad_fn
    while type(node).__name__ != "CompiledFunctionBackward":
        node = node.next_functions[0][0]
    return node


def captured():
    oracle, model = Oracle(), Words()
    loss = loss_of(torch.compile(model, backend=oracle.backend), torch.randn(4, 6, 16))
    node = region(loss)
    return oracle, loss, node


def test_a_live_node_has_its_graph_before_and_after_backward():
    oracle, loss, node = captured()
    before = aot.backward_graph(node)
    assert before is not None
    assert aot.kept(node) is None
    assert aot.cached_code(node) == ""
    loss.backward()
    (handed,) = oracle.backwards
    after = aot.backward_graph(node)
    assert after is before
    assert [str(one.target) for one in calls(after)] == [str(one.target) for one in calls(handed)]
    assert {"stack_trace", "val"} <= set(calls(after)[0].meta)
    assert any("fwd_nn_module_stack" in one.meta for one in calls(after))
    assert any(one.meta.get("is_gradient_acc") for one in calls(after))


def test_a_node_that_is_not_compiled_has_none():
    node = nn.Linear(2, 2)(torch.randn(1, 2)).sum().grad_fn
    assert aot.backward_graph(node) is None
    assert aot.kept(node) is None
    assert aot.cached_code(node) == ""


def test_what_is_kept_is_stored_with_the_graph(monkeypatch):
    from torch._functorch._aot_autograd import aot_autograd_result, graph_compile

    oracle, loss, _ = captured()
    loss.backward()
    (graph,) = oracle.backwards
    expected = read_graph(graph)
    plain = aot_autograd_result.serialize_graph_module
    monkeypatch.setattr(graph_compile, "serialize_graph_module", plain)
    assert aot.keep_when_cached(plain_graph)
    assert aot.keep_when_cached(plain_graph)  # in place already
    stored = pickle.loads(pickle.dumps(graph_compile.serialize_graph_module(graph)))
    assert not any(one.meta for one in graph.graph.nodes)

    class Cached:
        """As `CompiledFunction` is after a cache hit."""

        _lazy_backward_info = type("Info", (), {"bw_module_fn": stored.deserialize})

    node = type("Node", (), {"_forward_cls": Cached})()
    assert BackwardGraph.from_plain(aot.kept(node)) == expected
    code = read_code(aot.cached_code(node))
    assert [one.op for one in code.operations] == ops(graph)
    assert (set(code.links), code.ends) == (set(expected.links), expected.ends)


def test_a_reader_that_fails_keeps_nothing_and_fails_nothing(monkeypatch):
    from torch._functorch._aot_autograd import aot_autograd_result, graph_compile

    def fail(_graph):
        raise ValueError

    oracle, loss, _ = captured()
    loss.backward()
    plain = aot_autograd_result.serialize_graph_module
    monkeypatch.setattr(graph_compile, "serialize_graph_module", plain)
    assert aot.keep_when_cached(fail)
    stored = graph_compile.serialize_graph_module(oracle.backwards[0])
    assert stored.args[0]["meta"] == {}


def test_arithmetic_on_sizes_is_no_operation():
    import operator

    assert not is_operation(operator.getitem)
    assert not is_operation(operator.mul)
    assert not is_operation(torch.ops.aten.sym_size.int)
    assert is_operation(torch.ops.aten.mm.default)
