"""What a model's code says of attention, wherever that code was run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from workbench.modes.attention_use import calls_sdpa
from workbench.parallel.transfer.hook_state import _kept_in_a_module

BARE = """
def helper(x):
    return scale(x) * 2

def scale(x):
    return x + 1

class Net(nn.Module):
    def forward(self, x):
        return helper(x)
"""


def test_functions_of_no_module_are_looked_into() -> None:
    """Code that `exec` runs in a dictionary without ``__name__`` has none."""
    names: dict[str, Any] = {"nn": nn}
    exec(BARE, names)
    assert names["helper"].__module__ is None
    assert names["Net"]()(torch.zeros(1)).item() == 2
    calls_sdpa(names["Net"]())
    _kept_in_a_module(names["helper"])
