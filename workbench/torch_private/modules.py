"""Internal tables of `torch.nn.Module`, and the frame that every call goes through."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import nn

from workbench.torch_private.lookup import Check, expect, nothing, private

MODULE_CALL: CodeType = private("torch.nn.Module._wrapped_call_impl.__code__")
"""Code object of every module's call, compiled or not, with the module as ``self``."""

INNER_CALL: CodeType = private("torch.nn.Module._call_impl.__code__")
"""Code object of what runs hooks and forward, inside `MODULE_CALL`."""

COMPILED_CALL = "_compiled_call_impl"
"""Attribute through which ``nn.Module.compile`` compiles a module's call."""


_reduction: Callable[..., str] = private("torch.nn._reduction.legacy_get_string")


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
    return _reduction(size_average, reduce, emit_warning=False)


def has_hooks(module: nn.Module) -> bool:
    """Return whether hooks of its own are called around its forward or in its backward."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


# -- checks ---------------------------------------------------------------------------------


def _check_calls() -> None:
    of_class: Any = nn.Module
    expect(of_class._wrapped_call_impl.__code__ is MODULE_CALL, "a call is another function")
    expect("_call_impl" in MODULE_CALL.co_names, "a module's call runs another function")
    expect(plain_call(nn.Identity()).__code__ is INNER_CALL, "hooks are run by another function")


def _check_tables() -> None:
    module = nn.Module()  # by hand: a user's hooks on registered parameters are not called
    parameter_table(module)["weight"] = nn.Parameter(torch.ones(2, device="cpu"))
    buffer_table(module)["mean"] = torch.ones(2, device="cpu")
    expect("weight" in dict(module.named_parameters()), "parameters are elsewhere")
    expect("mean" in dict(module.named_buffers()), "buffers are elsewhere")
    expect(parameter_table(module) == dict(module.named_parameters()), "parameters are elsewhere")
    expect(buffer_table(module) == dict(module.named_buffers()), "buffers are elsewhere")


def _check_hooks() -> None:
    for register in (
        "register_forward_pre_hook",
        "register_forward_hook",
        "register_full_backward_hook",
    ):
        module = nn.Identity()
        expect(not has_hooks(module), "a new module has hooks")
        getattr(module, register)(nothing)
        expect(has_hooks(module), f"{register} puts a hook elsewhere")


def _check_reduction() -> None:
    expect(reduction_of(None, None) == "mean", "the default reduction is another one")
    expect(reduction_of(size_average=False, reduce=None) == "sum", "a sum has another name")


CHECKS = (
    Check(
        ("torch.nn.Module._wrapped_call_impl", "torch.nn.Module._call_impl"),
        "the calls of modules",
        _check_calls,
    ),
    Check(
        ("torch.nn.Module._parameters", "torch.nn.Module._buffers"),
        "the parameters and buffers of a module itself",
        _check_tables,
        concerns=("graphs", "training", "memory"),
        vital_for=("graphs", "training"),
    ),
    Check(
        (
            "torch.nn.Module._forward_hooks",
            "torch.nn.Module._forward_pre_hooks",
            "torch.nn.Module._backward_hooks",
        ),
        "whether a module has hooks",
        _check_hooks,
        concerns=("memory",),
    ),
    Check(
        ("torch.nn._reduction.legacy_get_string",),
        "the reduction of a loss with deprecated arguments",
        _check_reduction,
        concerns=("training",),
    ),
)
