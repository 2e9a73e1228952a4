"""The most that a step has allocated: counted by the allocator on a GPU, from its reports on a CPU.

What a CPU process holds of the system says little: glibc keeps what was freed. torch tells its
profiler of every allocation, so a profiled step has a peak of its own, which is the mode's and not
that of what came before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import nn

_REPORT = "[memory]"


def forget_peak(device: torch.device) -> None:
    """Let the GPU's high-water mark begin anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_on_gpu(device: torch.device) -> float:
    """Bytes at the high-water mark; NaN on a CPU."""
    return float(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else float("nan")


def allocated_at_most(profile: torch.profiler.profile) -> int:
    """Bytes at the peak of what was profiled with ``profile_memory``, beyond what was there."""
    results = cast("Any", profile).profiler.kineto_results.events()
    reports = [(one.start_ns(), one.nbytes()) for one in results if one.name() == _REPORT]
    if not reports:
        return 0
    return max(0, int(np.cumsum([size for _, size in sorted(reports)]).max()))


def held_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of weights, buffers, gradients and the optimizer's state; of a rank its own part."""
    storages = {
        storage.data_ptr(): storage.nbytes()
        for tensor in _tensors(model, optimizer)
        for storage in [_local(tensor).untyped_storage()]
    }
    return sum(storages.values())


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for parameter in model.parameters():
        yield parameter
        if parameter.grad is not None:
            yield parameter.grad
    yield from model.buffers()
    states = cast("Iterable[dict[str, Any]]", optimizer.state.values())
    for state in states:
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _local(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
