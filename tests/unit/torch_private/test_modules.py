"""A module's own tables, against what torch gives publicly."""

import torch
from torch import nn

from workbench.torch_private import modules


def test_the_tables_are_those_that_torch_reads() -> None:
    module = nn.BatchNorm1d(3)
    assert modules.parameter_table(module) == dict(module.named_parameters())
    assert modules.buffer_table(module) == dict(module.named_buffers())
    modules.parameter_table(module)["bias"] = None
    assert module.bias is None
    modules.buffer_table(module)["running_mean"] = torch.ones(3)
    assert module.running_mean.tolist() == [1.0, 1.0, 1.0]


def test_a_call_runs_hooks_and_forward() -> None:
    module = nn.Linear(2, 1)
    assert not modules.has_hooks(module)
    seen = []
    module.register_forward_hook(lambda *_: seen.append("hook"))
    assert modules.has_hooks(module)
    x = torch.ones(1, 2)
    assert torch.equal(modules.plain_call(module)(x), module(x))
    assert len(seen) == 2


def test_every_call_has_a_frame_of_that_code() -> None:
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError

    try:
        Fails()(torch.ones(1))
    except ValueError as error:
        trace, codes = error.__traceback__, []
        while trace is not None:
            codes.append(trace.tb_frame.f_code)
            trace = trace.tb_next
    assert modules.INNER_CALL in codes
