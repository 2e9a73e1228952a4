"""What selective activation checkpointing keeps instead of computing it again is counted."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import workbench as wb
from workbench.graph.questions.checkpoint_savings import checkpoint_saving

MM = torch.ops.aten.mm.default


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(32, 64, bias=False)
        self.narrow = nn.Linear(64, 32, bias=False)

    def forward(self, x):
        return self.narrow(self.wide(x).sin()).cos().exp()


class Net(nn.Module):
    def __init__(self, context_fn=None):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.options = {} if context_fn is None else {"context_fn": context_fn}

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, **self.options)
        return x.sum()


def keeps(*ops):
    return functools.partial(create_selective_checkpoint_contexts, list(ops))


def captured(model):
    x = torch.randn(16, 32)
    with wb.graph(model):
        loss = model(x)
    return wb.graph(loss).record


def test_the_results_that_a_policy_keeps_are_counted():
    plain, selective = captured(Net()), captured(Net(keeps(MM)))
    each = 16 * 64 * 4 + 16 * 32 * 4
    assert selective.saved_bytes - plain.saved_bytes == 2 * each
    assert any("kept by a policy" in note and "are counted" in note for note in selective.notes)
    assert not any("policy" in note for note in plain.notes)


def test_the_bytes_are_those_of_what_the_policy_chose():
    """A policy of its own, which remembers what it said."""
    kept: dict[int, int] = {}

    def policy(context, op, *args, **kwargs):
        if op is not MM and op is not torch.ops.aten.exp.default:
            return CheckpointPolicy.PREFER_RECOMPUTE
        storage = context.op_output.untyped_storage()
        alive.append(storage)
        kept[storage._cdata] = storage.nbytes()
        return CheckpointPolicy.PREFER_SAVE

    alive = []
    model = Net(functools.partial(create_selective_checkpoint_contexts, policy))
    plain, selective = captured(Net()), captured(model)
    # what a block gives is the next one's input too, and counted once
    both = 16 * 32 * 4
    assert selective.saved_bytes - plain.saved_bytes == sum(kept.values()) - both


def test_results_of_several_outputs_are_counted():
    def function(x):
        return x.sin().max(dim=1)[0].exp()

    x = torch.randn(16, 32, requires_grad=True)
    loss = checkpoint(
        function, x + 1, use_reentrant=False, context_fn=keeps(torch.ops.aten.max.dim)
    ).sum()
    assert wb.graph(loss).record.saved_bytes == x.nbytes + 16 * (4 + 8)


def test_the_nodes_of_a_region_hold_what_its_policy_keeps():
    view = wb.graph(captured(Net(keeps(MM))))
    held = [storage for storage in view.holders("blocks.0") if "kept by a policy" in storage.names]
    assert sorted(storage.num_bytes for storage in held) == [16 * 32 * 4, 16 * 64 * 4]
    assert all(not storage.others for storage in held)


def test_a_block_with_a_policy_is_checkpointed_and_says_what_it_keeps():
    said = str(checkpoint_saving(captured(Net(keeps(MM))), "blocks.1"))
    assert "is checkpointed already" in said
    assert "what its policy keeps" in said
    assert "policy" not in str(checkpoint_saving(captured(Net()), "blocks.1"))


def test_a_context_of_the_users_own_that_keeps_tensors_is_counted():
    class Keeps(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.found = {"mm": []}

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func is MM:
                self.found["mm"].append(out.clone())
            return out

    def contexts():
        mode = Keeps()
        return mode, mode

    record = captured(Net(contexts))
    each = 16 * 64 * 4 + 16 * 32 * 4
    assert record.saved_bytes - captured(Net()).saved_bytes == 2 * each


def test_what_a_checkpointed_function_brings_along_is_counted():
    x = torch.randn(8, requires_grad=True)
    factor = (x + 1).exp().detach()
    factor_bytes = factor.nbytes

    def region(scale):
        return checkpoint(lambda y: (y * scale).sin(), x + 2, use_reentrant=False).sum()

    loss = region(factor.clone())
    assert wb.graph(loss).record.saved_bytes == x.nbytes + factor_bytes


def test_after_backward_nothing_is_kept():
    model = Net(keeps(MM))
    loss = model(torch.randn(16, 32))
    loss.backward()
    assert wb.graph(loss).record.saved_bytes == 0


@pytest.mark.parametrize("keep", [(), (MM,)])
def test_counting_computes_nothing_again_and_changes_no_gradient(keep):
    torch.manual_seed(0)
    model, x = Net(keeps(*keep)), torch.randn(16, 32)
    model(x).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    loss = model(x)
    wb.graph(loss)
    loss.backward()
    found = [parameter.grad for parameter in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
