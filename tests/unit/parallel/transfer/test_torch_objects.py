"""Objects of torch that a cell names are found, or made again, in another process."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo
import torch._inductor.config
from torch.nn.attention import SDPBackend

from workbench.parallel.transfer.job_pickle import dump, read

SENDER = """import sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
import functools, torch, torch._dynamo, torch._inductor.config
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from workbench.parallel.transfer.job_pickle import dump

@torch.library.custom_op("cell::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)

twice.register_autograd(lambda ctx, g: g * 2)

@torch.library.custom_op("cell::unnamed", mutates_args=())
def unnamed(x: torch.Tensor) -> torch.Tensor:
    return x + 1

@functools.lru_cache(maxsize=7)
def grid(size):
    return torch.arange(size)

@torch.compile(backend="eager", fullgraph=True)
def fast(x):
    return x + 3

mul = torch.ops.aten.mul.Tensor

class Cell(nn.Module):
    @functools.cached_property
    def four(self):
        return 4

    @functools.lru_cache
    def five(self):
        return 5

    def forward(self, x):
        with torch.backends.cudnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH):
            x = mul(torch.ops.aten.add(x, self.four), torch.ones(()))
            x = twice(x) + grid(2) + self.five() + torch.finfo(torch.float32).tiny
            assert torch._dynamo.config.recompile_limit and torch._inductor.config.triton
            return fast(x + torch.ops.cell.unnamed(x.detach()) - x.detach())

dump(Path(sys.argv[1]), {"model": Cell(), "parts": [torch.backends, torch.ops.cell]}, {})
"""
RECEIVER = """import sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
import torch
from workbench.parallel.transfer.job_pickle import read
parts, _ = read(Path(sys.argv[1]), as_there=True)
assert parts["parts"][0] is torch.backends and parts["parts"][1] is torch.ops.cell
x = torch.ones(2, requires_grad=True)
y = parts["model"](x)
y.sum().backward()
print(y.tolist(), x.grad.tolist())
"""


def test_a_cell_that_names_them_computes_the_same_elsewhere(
    ran: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    for program in (SENDER, RECEIVER):
        done = ran(program, str(tmp_path / "payload"))
        assert not done.returncode, done.stderr
    # ((1 + 4) * 1) * 2 + (0, 1) + 5 + 1 + 3
    assert done.stdout == "[19.0, 20.0] [2.0, 2.0]\n"


def test_each_is_the_very_one_of_this_process(tmp_path: Path) -> None:
    config = torch._dynamo.config
    objects = [
        *(torch.backends, torch.backends.cudnn, torch.backends.cudnn.rnn, torch.backends.mkldnn),
        *(torch.backends.opt_einsum, torch.backends.quantized, torch.ops, torch.ops.aten),
        *(torch.ops.aten.mul, torch.ops.aten.mul.Tensor, torch.ops.higher_order),
        *(torch.ops.higher_order.cond, torch.classes, torch.classes.quantized, config),
        *(torch._inductor.config, SDPBackend, torch.compiler.config, torch._C, functools),
    ]
    dump(tmp_path / "payload", {"objects": objects, "kinds": [torch.finfo(torch.half)]}, {})
    parts, _ = read(tmp_path / "payload")
    for given, found in zip(objects, parts["objects"], strict=True):
        assert given is found, given
    assert parts["kinds"][0].dtype == "float16"
