"""Small real models whose compilations the tests look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from workbench.dynamo import CompileRecording, compile_report


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """Nothing that another test compiled is used again, and nothing of this one is left.

    With one compile thread Inductor keeps no pool of threads.
    """
    from torch._inductor import config

    torch.compiler.reset()
    with config.patch(compile_threads=1):
        yield
    torch.compiler.reset()


@pytest.fixture
def reported() -> Callable[..., CompileRecording]:
    """Call a function for each of some arguments inside a report; returns the report."""

    def report(function: Callable[..., object], *calls: tuple[object, ...]) -> CompileRecording:
        with compile_report() as found:
            for arguments in calls:
                function(*arguments)
        return found

    return report


class Clean(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(self.norm(x)))


@pytest.fixture
def clean() -> nn.Module:
    torch.manual_seed(0)
    return Clean()
