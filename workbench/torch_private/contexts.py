"""Contexts that a thread has entered: modes for functions and operators, default device, hooks."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import overrides
from torch.utils import _python_dispatch as dispatch
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "DeviceContext",
    "TorchDispatchMode",
    "dispatch_modes",
    "function_modes",
    "pop_dispatch_mode",
    "pop_function_mode",
    "push_dispatch_mode",
    "push_function_mode",
    "restore_modes",
    "saved_tensors_hooks",
    "without_mode",
]

push_function_mode = overrides._push_mode
"""Enter a `TorchFunctionMode` whose ``__enter__`` may only be called once."""
pop_function_mode = overrides._pop_mode
push_dispatch_mode = dispatch._push_mode
"""Enter a `TorchDispatchMode` of the same kind."""
pop_dispatch_mode = dispatch._pop_mode


def function_modes() -> tuple[Any, ...]:
    """Return every `TorchFunctionMode` of this thread, the outermost first."""
    return tuple(overrides._get_current_function_mode_stack())


def dispatch_modes() -> tuple[Any, ...]:
    """Return every `TorchDispatchMode` of this thread, the outermost first."""
    return tuple(dispatch._get_current_dispatch_mode_stack())


def saved_tensors_hooks() -> Any:
    """Return the innermost `saved_tensors_hooks` of this thread, or None."""
    return cast(Any, torch._C)._autograd._top_saved_tensors_default_hooks(True)  # noqa: FBT003


def without_mode(mode: Any) -> Sequence[Any]:
    """Remove ``mode`` from anywhere in this thread's stack; returns the stack to restore.

    Dynamo guards on the stack, so a compiled region must never see one of Workbench's modes.
    """
    stack = function_modes()
    _replace_stack(len(stack), [other for other in stack if other is not mode])
    return stack


def restore_modes(stack: Sequence[Any]) -> None:
    """Put back the stack that `without_mode` returned."""
    _replace_stack(len(function_modes()), stack)


def _replace_stack(depth: int, modes: Sequence[Any]) -> None:
    for _ in range(depth):
        pop_function_mode()
    for mode in modes:
        push_function_mode(mode)
