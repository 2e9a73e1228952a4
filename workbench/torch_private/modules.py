"""What `torch.nn.Module` keeps in tables of its own, and the frame that every call goes through."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.nn._reduction import legacy_get_string

CALL: CodeType = nn.Module._call_impl.__code__
"""The code of the call that runs hooks and forward."""

COMPILED_CALL = "_compiled_call_impl"
"""The attribute by which ``nn.Module.compile`` has a module's call compiled."""


def call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """Run hooks and forward of ``module``: what ``nn.Module.compile`` compiles."""
    return module._call_impl(*args, **kwargs)


def plain_call(module: nn.Module) -> Callable[..., Any]:
    """The same, bound."""
    return module._call_impl


def parameter_table(module: nn.Module) -> dict[str, Any]:
    """The parameters of ``module`` itself by name, None among them, to be read and assigned to."""
    return module._parameters


def buffer_table(module: nn.Module) -> dict[str, torch.Tensor | None]:
    """Its buffers, likewise; `named_buffers` has one under two names but once."""
    return module._buffers


def reduction_of(size_average: bool | None, reduce: bool | None) -> str:
    """``mean``, ``sum`` or ``none``: what these two names of former days say of a loss."""
    return legacy_get_string(size_average, reduce, emit_warning=False)


def has_hooks(module: nn.Module) -> bool:
    """Whether hooks of its own are called around its forward or in its backward."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
