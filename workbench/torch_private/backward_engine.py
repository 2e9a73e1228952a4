"""``loss.backward()`` for a plain scalar loss, without the checks that torch makes on the way.

`torch.Tensor.backward` checks, in some twenty Python calls, for things that a training step's loss
does not have (a subclass, a shape, several outputs, inputs of its own), and then passes a one to
autograd's engine; for a tiny model this is a tenth of the step. `run` passes the engine the same
one through torch's own function. It takes the usual path whenever anything is unusual: a subclass,
a loss that is not a real scalar or has no graph, a mode that sees functions or operators, a
transform of functions (`torch.func.grad`), a replacement of one of torch's functions.
"""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# The engine has no public name.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from workbench.torch_private.lookup import Check, is_missing, private

_run_engine: Callable[..., Any] = private("torch.autograd.graph._engine_run_backward")
_num_function_modes: Callable[[], int] = private("torch._C._len_torch_function_stack")
_num_dispatch_modes: Callable[[], int] = private("torch._C._len_torch_dispatch_stack")
_in_transform: Callable[[], bool] = private("torch._C._are_functorch_transforms_active")
_IS_KNOWN = not any(
    map(is_missing, (_run_engine, _num_function_modes, _num_dispatch_modes, _in_transform))
)
"""Whether this torch has them all; without one, every loss takes the usual path."""
_OF_TENSOR = torch.Tensor.backward
_OF_AUTOGRAD = torch.autograd.backward


def run(loss: torch.Tensor) -> None:
    """Add the gradients of ``loss`` to the leaves of its graph, as ``loss.backward()`` does."""
    if not _is_usual(loss):
        loss.backward()
        return
    _run_engine(
        (loss,),
        (torch.ones_like(loss, memory_format=torch.preserve_format),),
        False,  # noqa: FBT003 - retain_graph: the engine takes no names
        False,  # noqa: FBT003 - create_graph
        (),
        allow_unreachable=True,
        accumulate_grad=True,
    )


def _is_usual(loss: torch.Tensor) -> bool:
    return (
        _IS_KNOWN
        and type(loss) is torch.Tensor
        and loss.requires_grad
        and loss.dtype.is_floating_point
        and loss.numel() == 1
        and _num_function_modes() == 0
        and _num_dispatch_modes() == 0
        and not _in_transform()
        and torch.Tensor.backward is _OF_TENSOR
        and torch.autograd.backward is _OF_AUTOGRAD
    )


# -- checks ---------------------------------------------------------------------------------


def _check_engine() -> None:
    if not _IS_KNOWN:
        for name in (_run_engine, _num_function_modes, _num_dispatch_modes, _in_transform):
            if is_missing(name):
                name()
    leaves = [torch.full((2,), 3.0, device="cpu", requires_grad=True) for _ in range(2)]
    run(leaves[0].square().sum())
    leaves[1].square().sum().backward()
    ours, theirs = (leaf.grad for leaf in leaves)
    if ours is None or theirs is None or not torch.equal(ours, theirs):
        raise AssertionError("the engine adds other gradients")


CHECKS = (
    Check(
        (
            "torch.autograd.graph._engine_run_backward",
            "torch._C._len_torch_function_stack",
            "torch._C._len_torch_dispatch_stack",
            "torch._C._are_functorch_transforms_active",
        ),
        "a shorter way to backward",
        _check_engine,
        "loss.backward() is called instead, which gives the same and is slower",
    ),
)
