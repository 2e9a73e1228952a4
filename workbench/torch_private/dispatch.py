"""What of torch's inside is read to see types and where an operation runs; all of it is here."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# Using private names is this file's purpose.

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from workbench.torch_private.modules import COMPILED_CALL

MODULE_CALL: CodeType = nn.Module._wrapped_call_impl.__code__
"""Code under which every module's call runs, compiled or not, with the module as ``self``."""


def caller() -> FrameType:
    """The frame that called the function which calls this one."""
    return sys._getframe(2)


def running_node() -> Any | None:
    """The autograd node whose backward runs on this thread, or None."""
    return torch._C._current_autograd_node()


def in_backward() -> bool:
    """Whether autograd's engine is at work on this thread, between two nodes too."""
    return torch._C._current_graph_task_id() != -1


def node_number(node: Any) -> int:
    """The sequence number a node was given in forward."""
    return node._sequence_nr()


def last_number() -> int:
    """The sequence number of the newest autograd node of this thread."""
    return torch.autograd._get_sequence_nr() - 1


def is_compiled(module: nn.Module) -> bool:
    """Whether calls of ``module`` run compiled code."""
    if type(module).__name__ == "OptimizedModule":
        return True
    return getattr(module, COMPILED_CALL, None) is not None


def has_formula(operation: Any) -> bool:
    """Whether torch knows how many FLOPs it takes: matrices, convolutions, fused attention."""
    return operation._overloadpacket in flop_registry


def flops_of(operation: Any, args: Any, kwargs: Any, out: Any) -> int:
    """FLOPs of a product by torch's own formula.

    Raises:
        Exception: the formula does not take these arguments.
    """
    return int(flop_registry[operation._overloadpacket](*args, **kwargs, out_val=out))
