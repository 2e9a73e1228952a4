"""The private parts of PyTorch that a memory recording needs, each wrapped once.

`tests/unit/torch_private/test_memory.py` fails when one of them moves, `tests/gpu` for those that
need CUDA. Inductor's generated modules are wrapped in `workbench.memory.recording.compiled`.
"""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# Using private names is this file's purpose.

from __future__ import annotations

import sys
from types import CodeType, FrameType, ModuleType
from typing import Any, cast

import torch
from torch import nn
from torch.autograd import graph

BACKWARD_CALLS: frozenset[CodeType] = frozenset(
    {
        graph._engine_run_backward.__code__,
        torch.autograd.backward.__code__,
        torch.autograd.grad.__code__,
    }
)
"""Code objects under which backward runs on the thread that called it."""

GRAD_CALL: CodeType = torch.autograd.grad.__code__
"""Code object of ``torch.autograd.grad``, whose results belong to its caller."""

_FUNCTORCH: Any = vars(torch._C)["_functorch"]

OPTIMIZER_STEP = (sys.modules["torch.optim.optimizer"].__file__, "wrapper")
"""File and name of the wrapper of every ``Optimizer.step``; its ``args[0]`` is the optimizer."""

_PLAIN: Any = vars(torch.Tensor)["__torch_dispatch__"]


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return indices and values of a COO tensor, coalesced or not."""
    return tensor._indices(), tensor._values()


def without_transforms(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor inside the wrappers of ``torch.func`` (``grad``, ``vmap``), or itself."""
    while _FUNCTORCH.is_functorch_wrapped_tensor(tensor):
        tensor = _FUNCTORCH.get_unwrapped(tensor)
    return tensor


def dispatches_itself(kind: type) -> bool:
    """Return whether a tensor class has a ``__torch_dispatch__`` of its own."""
    own = next(
        (vars(c)["__torch_dispatch__"] for c in kind.__mro__ if "__torch_dispatch__" in vars(c)),
        _PLAIN,
    )
    return own is not _PLAIN


def generated_modules() -> list[ModuleType]:
    """Return the Python modules that Inductor has generated in this process so far."""
    cache = sys.modules.get("torch._inductor.codecache")
    # another thread may be importing it right now: then nothing has been generated yet
    known = getattr(cache, "PyCodeCache", None)
    return [] if known is None else list(known.modules)


def original_module(module: nn.Module) -> nn.Module:
    """Return the module that ``torch.compile(module)`` wraps, or the module itself."""
    if type(module).__name__ != "OptimizedModule":  # cheaper than importing Dynamo to check
        return module
    return getattr(module, "_orig_mod", module)


def fake_mode() -> Any:
    """Return a new ``FakeTensorMode``: under it tensors have shapes and storages, but no memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def is_fake(kind: type) -> bool:
    """Return whether a tensor class is that of fake tensors."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and issubclass(kind, module.FakeTensor)


def caller(depth: int) -> FrameType:
    """Return the frame ``depth`` calls above the calling function."""
    return sys._getframe(depth + 1)


def is_history_on() -> bool:
    """Return whether the CUDA allocator keeps a history."""
    return torch._C._cuda_isHistoryEnabled()


def start_history(max_entries: int) -> None:
    """Make the CUDA allocator keep its newest events on each device, without stacks."""
    torch.cuda.memory._record_memory_history(
        "all", context=None, stacks="python", max_entries=max_entries
    )


def stop_history() -> None:
    """Make the CUDA allocator keep no history."""
    torch.cuda.memory._record_memory_history(None)


def allocator_snapshot() -> dict[str, Any]:
    """Return the segments and, if a history is kept, ``device_traces`` of every CUDA device."""
    return cast("dict[str, Any]", torch.cuda.memory._snapshot())
