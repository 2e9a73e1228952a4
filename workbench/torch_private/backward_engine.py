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

import torch
from torch.autograd import graph

_OF_TENSOR = torch.Tensor.backward
_OF_AUTOGRAD = torch.autograd.backward


def run(loss: torch.Tensor) -> None:
    """Add the gradients of ``loss`` to the leaves of its graph, as ``loss.backward()`` does."""
    if not _is_usual(loss):
        loss.backward()
        return
    graph._engine_run_backward(
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
        type(loss) is torch.Tensor
        and loss.requires_grad
        and loss.dtype.is_floating_point
        and loss.numel() == 1
        and torch._C._len_torch_function_stack() == 0
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch._C._are_functorch_transforms_active()
        and torch.Tensor.backward is _OF_TENSOR
        and torch.autograd.backward is _OF_AUTOGRAD
    )
