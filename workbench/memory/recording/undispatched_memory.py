"""The memory that the dispatcher does not show: Inductor's buffers and resized storages.

Inductor's generated Python allocates its buffers with ``empty_strided_cpu`` (or ``_cuda``), a name
bound in every generated module. During a recording, that name points to a function that allocates
in the same way and reports the storage. Dynamo has no guard on it, so nothing is recompiled and the
generated code does not change. ``UntypedStorage.resize_``, which FSDP uses to free and regrow
parameters, bypasses the dispatcher too and is reported in the same way.

Not seen: buffers of generated code that is C++ throughout (``cpp_wrapper``) or replayed from a CUDA
graph. Both private names are used only here, and
`tests/unit/memory/recording/test_undispatched_memory.py` fails when they move.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

from workbench.memory.recording.recorder import current_recorder
from workbench.torch_private.memory import generated_modules

OP = "inductor buffer"
_ALLOCATORS = ("empty_strided_cpu", "empty_strided_cpu_pinned", "empty_strided_cuda")
_lock = threading.Lock()
_users = 0
_restore: list[Callable[[], None]] = []


@contextmanager
def undispatched_memory() -> Generator[None]:
    """Report undispatched allocations to the recorder of the thread that makes them."""
    global _users  # noqa: PLW0603 - several threads may record at once and share one patch
    with _lock:
        _users += 1
        if _users == 1:
            _patch()
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                while _restore:
                    _restore.pop()()


def _patch() -> None:
    _replace(torch.UntypedStorage, "resize_", _reporting_resize)
    for module in generated_modules():
        for name in _ALLOCATORS:
            if hasattr(module, name):
                _replace(module, name, _reporting_empty)


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    inherited = name not in vars(owner)
    original = getattr(owner, name)
    setattr(owner, name, wrap(original))
    if inherited:
        _restore.append(lambda: delattr(owner, name))
    else:
        _restore.append(lambda: setattr(owner, name, original))


def _reporting_resize(original: Callable[..., Any]) -> Callable[..., Any]:
    def resize_(storage: torch.UntypedStorage, size: int) -> Any:
        result = original(storage, size)
        recorder = current_recorder()
        if recorder is not None:
            recorder.guarded(recorder.resized, storage, "resize_")
        return result

    return resize_


def _reporting_empty(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        tensor = original(size, stride, dtype)
        recorder = current_recorder()
        if recorder is not None:
            recorder.guarded(recorder.allocated, tensor.untyped_storage(), OP)
        return tensor

    return empty_strided
