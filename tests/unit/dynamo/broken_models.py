"""Functions and models that Dynamo cannot compile in one piece, each at a line marked so."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import nn


def branches(x: torch.Tensor) -> torch.Tensor:
    h = x * 2
    if h.sum() > 0:  # here
        h = h + 1
    return h * 3


def reads_item(x: torch.Tensor) -> torch.Tensor:
    h = x * 2
    total = h.sum().item()  # here
    return h * total


def prints(x: torch.Tensor) -> torch.Tensor:
    h = x * 2
    print("h is there")  # here
    return h * 3


def unsupported_builtin(x: torch.Tensor) -> torch.Tensor:
    h = x * 2
    names = compile("1 + 1", "<made>", "eval")  # here
    return h * len(names.co_names)


class Attribute(nn.Module):
    """Its forward depends on a Python number that it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.power = 1

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.linear(features) * self.power  # here


def line_of(thing: Callable[..., object] | type) -> int:
    """The line of this file that is marked in ``thing``."""
    lines, first = inspect.getsourcelines(thing)
    return first + next(at for at, line in enumerate(lines) if "# here" in line)
