"""Fails when torch moves what `checkpoint.py` reads of non-reentrant checkpointing."""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

from workbench.torch_private.autograd import raw_slots, raw_values
from workbench.torch_private.checkpoint import Regions, is_holder


def tanh_exp(x, scale=1.0, factor=None):
    return (x.tanh() * scale if factor is None else x.tanh() * factor).exp()


def saved_by(node):
    return [value for slot in raw_slots(type(node)) for value in raw_values(node, slot)]


def test_a_node_inside_leads_to_what_its_region_keeps():
    x, factor = torch.randn(3, requires_grad=True), torch.ones(3)
    first = checkpoint(tanh_exp, x, factor=factor, use_reentrant=False)
    second = checkpoint(tanh_exp, x.exp(), 2.0, use_reentrant=False)
    assert not is_holder(x)
    regions = Regions()
    for out, expected in ((first, x), (second, x.exp())):
        holders = list(filter(is_holder, saved_by(out.grad_fn)))
        (tensor, *more) = regions.kept_by(holders[0]).given
        assert torch.equal(tensor, expected)
        assert regions.kept_by(holders[-1]) is regions.kept_by(holders[0])
        assert regions.kept_by(holders[0]).function is tanh_exp
        assert regions.kept_by(holders[0]).results == []
        assert regions.kept_by(holders[0]).context is not None
        assert more == ([{"factor": factor}] if out is first else [2.0, {}])


def test_after_backward_there_is_nothing_left():
    x = torch.randn(3, requires_grad=True)
    out = checkpoint(tanh_exp, x, use_reentrant=False)
    holder = next(filter(is_holder, saved_by(out.grad_fn)))
    assert Regions().kept_by(holder) is not None
    out.sum().backward()
    assert Regions().kept_by(holder) is None
