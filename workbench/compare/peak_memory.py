"""Peak memory of a step: from the allocator on a GPU, from its reports to the profiler on a CPU.

The memory that a CPU process holds is not a useful measure: glibc keeps what was freed. torch
reports every allocation to its profiler, so a profiled step has a peak of its own, which is that of
the mode and not of what came before. torch does not report when memory is freed that was allocated
before the profile began. So two steps are profiled and the second is measured: what is allocated
anew in every step (the gradients above all, or a buffer that a forward assigns) was then allocated
inside the profile. Added to this is what existed before and still exists after the first of the two
steps (`Held`).
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
    """Reset the GPU's high-water mark."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_on_gpu(device: torch.device) -> float:
    """Return the bytes at the high-water mark; NaN on a CPU."""
    return float(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else float("nan")


def profiled_on_cpu(
    step: Callable[[], object], *modules: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[float, list[Any]]:
    """Run ``step`` twice, and measure the second run.

    Args:
        step: one training step of ``modules``; at least one has been run before.
        modules: the model as it is called, and the loss if it is a module.
        optimizer: the optimizer that updates them.

    Returns:
        The peak of allocated bytes, including what existed before; and the events of that step, as
        `torch.profiler.profile.events` returns them.
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
    """Return the peak bytes of the measured step, counting what was allocated inside the profile.

    Frees of anything else are ignored: torch reports them only if an earlier profile of the process
    has seen an allocation at the same address.
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
    """The memory of weights, buffers, gradients and optimizer state; on a rank, of its own part.

    A storage counts once, however many tensors use it; no storage is kept alive.

    Args:
        modules: the modules whose parameters, gradients, buffers and other tensors are counted.
        optimizer: the optimizer whose state is counted.
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
        """Bytes of the storages that are still alive."""
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
    """Return the tensors in nested lists, tuples and mappings."""
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _with_gradient(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    yield tensor
    if tensor.is_leaf and tensor.grad is not None:
        yield tensor.grad


def _parts(tensor: Any) -> Iterator[torch.Tensor]:
    """Yield the strided tensors that hold the memory of ``tensor``."""
    if is_lazy(tensor):
        return  # it uses no memory before its module's first call
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
    """Return the bytes of `DistributedDataParallel`'s buckets, as large as all gradients."""
    if not isinstance(module, nn.parallel.DistributedDataParallel):
        return 0
    known = ddp_figures(module)
    if known.get("gradient_as_bucket_view"):
        return 0  # the gradients are views of them, and are counted
    sizes = known.get("rebuilt_bucket_sizes") or known.get("bucket_sizes") or ""
    return sum(int(size) for size in str(sizes).split(",") if size.strip())
