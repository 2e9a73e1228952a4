"""Contexts that a thread has entered: modes for functions and operators, default device, hooks."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from workbench.torch_private.lookup import Check, expect, is_missing, private

if TYPE_CHECKING:
    from torch.utils._device import DeviceContext
    from torch.utils._python_dispatch import TorchDispatchMode
else:
    DeviceContext = private("torch.utils._device.DeviceContext")
    TorchDispatchMode = private("torch.utils._python_dispatch.TorchDispatchMode")

__all__ = [
    "CHECKS",
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

push_function_mode: Callable[[Any], None] = private("torch.overrides._push_mode")
"""Enter a `TorchFunctionMode` whose ``__enter__`` may only be called once."""
pop_function_mode: Callable[[], Any] = private("torch.overrides._pop_mode")
push_dispatch_mode: Callable[[Any], None] = private("torch.utils._python_dispatch._push_mode")
"""Enter a `TorchDispatchMode` of the same kind."""
pop_dispatch_mode: Callable[[], Any] = private("torch.utils._python_dispatch._pop_mode")
_function_modes: Callable[[], Sequence[Any]] = private(
    "torch.overrides._get_current_function_mode_stack"
)
_dispatch_modes: Callable[[], Sequence[Any]] = private(
    "torch.utils._python_dispatch._get_current_dispatch_mode_stack"
)
_top_hooks: Callable[[bool], Any] = private("torch._C._autograd._top_saved_tensors_default_hooks")


def function_modes() -> tuple[Any, ...]:
    """Return every `TorchFunctionMode` of this thread, the outermost first."""
    return () if is_missing(_function_modes) else tuple(_function_modes())


def dispatch_modes() -> tuple[Any, ...]:
    """Return every `TorchDispatchMode` of this thread, the outermost first."""
    return () if is_missing(_dispatch_modes) else tuple(_dispatch_modes())


def saved_tensors_hooks() -> Any:
    """Return the innermost `saved_tensors_hooks` of this thread, or None."""
    return None if is_missing(_top_hooks) else _top_hooks(True)  # noqa: FBT003


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


# -- checks ---------------------------------------------------------------------------------


def _check_function_modes() -> None:
    from torch.overrides import TorchFunctionMode

    outer, inner = TorchFunctionMode(), TorchFunctionMode()
    push_function_mode(outer)
    push_function_mode(inner)
    try:
        expect(function_modes() == (outer, inner), "modes for functions are in another order")
        stack = without_mode(outer)
        expect(function_modes() == (inner,), "a mode cannot be taken out of the stack")
        restore_modes(stack)
        expect(function_modes() == (outer, inner), "a mode cannot be put back")
    finally:
        while function_modes():
            pop_function_mode()


def _check_dispatch_modes() -> None:
    mode: Any = TorchDispatchMode()
    push_dispatch_mode(mode)
    try:
        expect(dispatch_modes() == (mode,), "modes for operators are not listed")
    finally:
        pop_dispatch_mode()
    expect(dispatch_modes() == (), "a mode for operators stays")


def _check_device() -> None:
    import torch

    with torch.device("meta"):
        (mode,) = function_modes()
        expect(isinstance(mode, DeviceContext), "a default device is not recognised")


def _check_saved_hooks() -> None:
    import torch

    def same(value: torch.Tensor) -> torch.Tensor:
        return value

    expect(saved_tensors_hooks() is None, "there are hooks on saved tensors where there are none")
    with torch.autograd.graph.saved_tensors_hooks(same, same):
        expect(saved_tensors_hooks() is not None, "hooks on saved tensors are not found")


CHECKS = (
    Check(
        (
            "torch.overrides._push_mode",
            "torch.overrides._pop_mode",
            "torch.overrides._get_current_function_mode_stack",
        ),
        "modes for functions that a cell has entered",
        _check_function_modes,
        concerns=("training", "graphs"),
        vital_for=("graphs",),
    ),
    Check(
        (
            "torch.utils._python_dispatch.TorchDispatchMode",
            "torch.utils._python_dispatch._push_mode",
            "torch.utils._python_dispatch._pop_mode",
            "torch.utils._python_dispatch._get_current_dispatch_mode_stack",
        ),
        "modes for operators that a cell has entered",
        _check_dispatch_modes,
        concerns=("training", "memory", "types", "parallel"),
        vital_for=("memory", "types"),
    ),
    Check(
        ("torch.utils._device.DeviceContext",),
        "the default device of a cell",
        _check_device,
        concerns=("training",),
    ),
    Check(
        ("torch._C._autograd._top_saved_tensors_default_hooks",),
        "hooks on saved tensors that a cell has entered",
        _check_saved_hooks,
        concerns=("training",),
    ),
)
