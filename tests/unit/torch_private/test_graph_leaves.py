"""Leaves of a graph: what torch's own nodes add gradients to, and nothing that looks like one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import workbench as wb
from tests.unit.modes.own_loop.support import sgd
from workbench.torch_private.graph_leaves import leaf_of, leaves_of


class Named(torch.autograd.Function):
    """Keeps something under the name that torch's own node has for its leaf."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        ctx.variable = "a name"
        return value * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class AccumulateGrad(Named):
    """Named as torch's own."""


@pytest.mark.parametrize("function", [Named, AccumulateGrad])
def test_a_function_of_ones_own_is_no_leaf(function: Any) -> None:
    leaf = torch.ones(3, requires_grad=True)
    loss = function.apply(leaf).sum()
    node = loss.grad_fn.next_functions[0][0]
    assert node.variable == "a name"
    assert leaf_of(node) is None
    assert leaf_of(None) is None
    assert leaf_of(node.next_functions[0][0]) is leaf
    assert [id(one) for one in leaves_of(loss)] == [id(leaf)]


def test_a_loss_without_a_node_is_its_own_leaf() -> None:
    leaf = torch.ones((), requires_grad=True)
    assert leaves_of(leaf)[0] is leaf


def test_a_leaf_near_the_loss_is_found_in_front_of_a_deep_graph() -> None:
    """Of a deep graph a part is looked at: what is near to the loss."""
    near, value = torch.ones((), requires_grad=True), torch.ones((), requires_grad=True)
    deep = value
    for _ in range(6_000):
        deep = deep * 1.0
    found = leaves_of(deep * near)
    assert len(found) == 1
    assert found[0] is near


@pytest.mark.parametrize("text", ["", "fp16"])
def test_a_function_of_ones_own_runs_under_modes(text: str) -> None:
    modes, model = wb.Modes(text), nn.Linear(4, 1)
    modes.prepare(model)
    with modes.forward():
        loss = Named.apply(model(torch.ones(2, 4))).float().mean() / 8
    with modes.update(loss, sgd(model)):
        assert torch.equal(model.bias.grad, torch.full((1,), 0.25))
    modes.remove()
