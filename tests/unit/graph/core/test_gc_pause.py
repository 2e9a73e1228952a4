"""Python's collector of garbage while a capture is made."""

from __future__ import annotations

import gc

import pytest
import torch

import workbench as wb
from workbench.graph.core.gc_pause import without_collections


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_as_it_was_afterwards(is_on):
    def fail():
        with without_collections():
            assert not gc.isenabled()
            raise ZeroDivisionError

    gc.enable() if is_on else gc.disable()
    try:
        with pytest.raises(ZeroDivisionError):
            fail()
        assert gc.isenabled() is is_on
    finally:
        gc.enable()


def test_it_runs_while_the_users_code_does():
    seen = []

    class Model(torch.nn.Linear):
        def forward(self, x):
            seen.append(gc.isenabled())
            return super().forward(x)

    model = Model(3, 3)
    with wb.graph(model) as view:
        loss = model(torch.ones(2, 3)).sum()
        loss.grad_fn.register_hook(lambda *_: seen.append(gc.isenabled()))
        loss.backward()
    assert view.record.gradients
    assert seen == [True, True]


def test_a_capture_makes_few_objects_for_each_node():
    """What stays until backward is looked through by every collection until then."""
    w = torch.ones(3, requires_grad=True)
    loss = w
    for _ in range(2000):
        loss = loss + 1
    gc.collect()
    before = len(gc.get_objects())
    view = wb.graph(loss)
    made = len(gc.get_objects()) - before
    loss.sum().backward()
    assert view.has_record
    assert made < 4.5 * 2000
