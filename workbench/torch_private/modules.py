"""Internal tables of `torch.nn.Module`, and the frame that every call goes through."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.nn._reduction import legacy_get_string

MODULE_CALL: CodeType = nn.Module._wrapped_call_impl.__code__
"""Code object of every module's call, compiled or not, with the module as ``self``."""

INNER_CALL: CodeType = nn.Module._call_impl.__code__
"""Code object of what runs hooks and forward, inside `MODULE_CALL`."""

COMPILED_CALL = "_compiled_call_impl"
"""Attribute through which ``nn.Module.compile`` compiles a module's call."""


def plain_call(module: nn.Module) -> Callable[..., Any]:
    """Return what runs hooks and forward of ``module``, not compiled."""
    return module._call_impl


def parameter_table(module: nn.Module) -> dict[str, Any]:
    """Return the parameters of ``module`` itself by name, including None, to read and assign."""
    return module._parameters


def buffer_table(module: nn.Module) -> dict[str, torch.Tensor | None]:
    """Return its buffers in the same way; `named_buffers` lists one with two names only once."""
    return module._buffers


def reduction_of(size_average: bool | None, reduce: bool | None) -> str:
    """Return ``mean``, ``sum`` or ``none``, as these two deprecated arguments of a loss specify."""
    return legacy_get_string(size_average, reduce, emit_warning=False)


def has_hooks(module: nn.Module) -> bool:
    """Return whether hooks of its own are called around its forward or in its backward."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
