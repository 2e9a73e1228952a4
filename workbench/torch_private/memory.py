"""The private parts of PyTorch that a memory recording needs, each wrapped once.

`tests/unit/torch_private/test_memory.py` fails when one of them moves, `tests/gpu` for those that
need CUDA. Inductor's generated modules are wrapped in
`workbench.memory.recording.undispatched_memory`.
"""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
# Using private names is this file's purpose.

from __future__ import annotations

import sys
from types import CodeType, FrameType, ModuleType
from typing import Any, cast

import torch
from torch import nn

from workbench.torch_private.lookup import Check, expect, is_missing, nothing, private

BACKWARD_CALLS: frozenset[CodeType] = frozenset(
    {
        private("torch.autograd.graph._engine_run_backward.__code__"),
        torch.autograd.backward.__code__,
        torch.autograd.grad.__code__,
    }
)
"""Code objects under which backward runs on the thread that called it."""

GRAD_CALL: CodeType = torch.autograd.grad.__code__
"""Code object of ``torch.autograd.grad``, whose results belong to its caller."""

_FUNCTORCH: Any = private("torch._C._functorch")

OPTIMIZER_STEP = (sys.modules["torch.optim.optimizer"].__file__, "wrapper")
"""File and name of the wrapper of every ``Optimizer.step``; its ``args[0]`` is the optimizer."""

_PLAIN: Any = vars(torch.Tensor).get("__torch_dispatch__")


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


# -- checks ---------------------------------------------------------------------------------


def _check_backward_calls() -> None:
    expect(not any(map(is_missing, BACKWARD_CALLS)), "backward is begun by another function")
    seen: set[CodeType] = set()

    def inspect(_: torch.Tensor) -> None:
        frame: FrameType | None = caller(0)
        while frame is not None:
            seen.add(frame.f_code)
            frame = frame.f_back

    leaf = torch.ones(2, device="cpu", requires_grad=True)
    leaf.register_hook(inspect)
    (leaf * 2).sum().backward()
    expect(seen & BACKWARD_CALLS, "backward runs under another function")
    seen.clear()
    torch.autograd.grad((leaf * 2).sum(), leaf)
    expect(GRAD_CALL in seen, "torch.autograd.grad runs under another function")


def _check_optimizer() -> None:
    wrapped: Any = torch.optim.Optimizer.profile_hook_step(nothing)
    code = wrapped.__code__
    expect((code.co_filename, code.co_name) == OPTIMIZER_STEP, "a step has another wrapper")


def _check_sparse() -> None:
    indices, values = sparse_parts(torch.eye(2, device="cpu").to_sparse_coo())
    expect(tuple(indices.shape) == (2, 2) and tuple(values.shape) == (2,), "parts are others")


def _check_transforms() -> None:
    seen: list[torch.Tensor] = []

    def inspect(value: torch.Tensor) -> torch.Tensor:
        seen.append(without_transforms(value))
        return value

    data = torch.ones(2, 3, device="cpu")
    cast(Any, torch.func.vmap)(inspect)(data)
    expect(seen[0].data_ptr() == data.data_ptr(), "a wrapper has another tensor inside")


def _check_fake() -> None:
    with fake_mode():
        fake = torch.zeros(4, 8, device="cpu", dtype=torch.float32) + 1
    expect(is_fake(type(fake)) and not is_fake(torch.Tensor), "fake tensors have another class")
    expect(fake.untyped_storage().nbytes() == 128, "a fake tensor has another size")


def _check_history() -> None:
    if torch.cuda.is_initialized():  # before, torch's allocator has no device to ask
        expect(is_history_on() in (True, False), "a history is neither kept nor not kept")
    expect(callable(torch.cuda.memory._record_memory_history), "no history can be kept")
    expect(callable(torch.cuda.memory._snapshot), "the allocator shows nothing")


CHECKS = (
    Check(
        ("torch.autograd.graph._engine_run_backward",),
        "which memory belongs to backward",
        _check_backward_calls,
    ),
    Check(
        ("torch.optim.Optimizer.profile_hook_step",),
        "which memory belongs to the optimizer",
        _check_optimizer,
    ),
    Check(
        ("torch._C.TensorBase._indices", "torch._C.TensorBase._values"),
        "the memory of sparse tensors",
        _check_sparse,
    ),
    Check(
        (
            "torch._C._functorch.is_functorch_wrapped_tensor",
            "torch._C._functorch.get_unwrapped",
        ),
        "tensors inside torch.func transforms",
        _check_transforms,
    ),
    Check(
        ("torch._subclasses.fake_tensor.FakeTensorMode",),
        "predictions of memory",
        _check_fake,
    ),
    Check(
        (
            *(("torch._C._cuda_isHistoryEnabled",) if torch.version.cuda else ()),
            "torch.cuda.memory._record_memory_history",
            "torch.cuda.memory._snapshot",
        ),
        "the CUDA allocator",
        _check_history,
    ),
)
