"""The most that a step has allocated: counted by the allocator on a GPU, from its reports on a CPU.

What a CPU process holds of the system says little: glibc keeps what was freed. torch tells its
profiler of every allocation, so a profiled step has a peak of its own, which is the mode's and not
that of what came before. It does not tell of the end of what was allocated before the profile
began. So two steps are profiled and the second is measured: what is made anew in every step (the
gradients above all, or a buffer that a forward assigns) was then allocated inside of the profile.
To that comes what was there before and is still there after the first of them (`Held`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from workbench.torch_private.distributed import ddp_figures
from workbench.torch_private.pytree import tree_leaves

_REPORT = "[memory]"
_MEASURED = "workbench: the step that is measured"


def forget_peak(device: torch.device) -> None:
    """Let the GPU's high-water mark begin anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_on_gpu(device: torch.device) -> float:
    """Bytes at the high-water mark; NaN on a CPU."""
    return float(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else float("nan")


def profiled_on_cpu(
    step: Callable[[], object], *modules: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[float, list[Any]]:
    """Do ``step`` twice, and look at the second one.

    Args:
        step: one training step of ``modules``; at least one was done before.
        modules: the model as it is called, and the loss where it is a module.
        optimizer: what updates them.

    Returns:
        Bytes that were allocated at most, with all that was there; and the events of that step, as
        `torch.profiler.profile.events` gives them.
    """
    held = Held(*modules, optimizer=optimizer)
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
        still_held = held.num_bytes
        with torch.profiler.record_function(_MEASURED):
            step()
    events = list(profile.events() or ())
    begun = next(event.time_range.start for event in events if event.name == _MEASURED)
    inside = [e for e in events if e.time_range.start >= begun and e.name != _MEASURED]
    return float(still_held + _allocated_at_most(profile)), inside


def _allocated_at_most(profile: torch.profiler.profile) -> int:
    """Bytes at the peak of the step that is measured, of what was allocated inside of the profile.

    The end of what was not is left out: torch tells of it where an earlier profile of the process
    has seen something at the same address, and not otherwise.
    """
    begun, reports = 0, list[tuple[int, int, int]]()
    waiting = list(cast("Any", profile).profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.name == _MEASURED:
            begun = event.start_time_ns
        elif event.name == _REPORT:
            _, report = event.typed
            reports.append((event.start_time_ns, report.ptr, report.alloc_size))
    level = most = 0
    living: dict[int, int] = {}
    for time, address, num_bytes in sorted(reports, key=lambda report: report[0]):
        if num_bytes > 0:
            living[address] = num_bytes
        elif (num_bytes := -living.pop(address, 0)) == 0:
            continue
        if time >= begun:
            most = max(most, level)
        level += num_bytes
    return max(most, level)


class Held:
    """What weights, buffers, gradients and optimizer state take up; of a rank its own part.

    A storage counts once, however many tensors are in it; none is kept alive.

    Args:
        modules: whose parameters, gradients, buffers and other tensors are counted.
        optimizer: whose state is.
    """

    def __init__(self, *modules: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._storages: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
        self._buckets = sum(map(_bucket_bytes, modules))
        for tensor in _tensors(modules, optimizer):
            for part in _parts(tensor):
                storage = part.untyped_storage()
                if storage.device.type != "meta" and storage.nbytes():
                    self._storages[storage.data_ptr()] = weakref.ref(storage), storage.nbytes()

    @property
    def num_bytes(self) -> int:
        """Bytes of those that still live."""
        living = (size for storage, size in self._storages.values() if storage() is not None)
        return self._buckets + sum(living)


def _tensors(
    modules: tuple[nn.Module, ...], optimizer: torch.optim.Optimizer
) -> Iterator[torch.Tensor]:
    for module in (own for one in modules for own in one.modules()):
        for parameter in module.parameters(recurse=False):
            yield from _with_gradient(parameter)
        kept = [value for name, value in vars(module).items() if name not in ("_modules",)]
        yield from _in(kept)
    groups: list[dict[str, Any]] = optimizer.param_groups
    for parameter in _in(groups):
        yield from _with_gradient(parameter)
    yield from _in(list(optimizer.state.values()))


def _in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples and mappings."""
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _with_gradient(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    yield tensor
    if tensor.is_leaf and tensor.grad is not None:
        yield tensor.grad


def _parts(tensor: Any) -> Iterator[torch.Tensor]:
    """Strided tensors that hold the memory of ``tensor``."""
    if is_lazy(tensor):
        return  # it takes no memory before its module's first call
    if hasattr(tensor, "to_local"):
        yield from _parts(tensor.to_local())
    elif hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            yield from _parts(getattr(tensor, name))
    elif tensor.layout is torch.strided:
        yield tensor
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())


def _bucket_bytes(module: nn.Module) -> int:
    """What `DistributedDataParallel` keeps to average gradients in, of the size of all of them."""
    if not isinstance(module, nn.parallel.DistributedDataParallel):
        return 0
    known = ddp_figures(module)
    if known.get("gradient_as_bucket_view"):
        return 0  # the gradients are in them, and are counted
    sizes = known.get("rebuilt_bucket_sizes") or known.get("bucket_sizes") or ""
    return sum(int(size) for size in str(sizes).split(",") if size.strip())
