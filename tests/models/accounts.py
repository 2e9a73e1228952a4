"""Two independent accounts of the memory of a step: torch's profiler and torch's `MemTracker`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

Event = tuple[int, int, int, int]
"""Time in nanoseconds, bytes (negative for a free), address, and the operation it is part of."""

_OPERATION = "one dispatched operation"


class Allocations(NamedTuple):
    """Most bytes above the start of a step, as the CPU allocator reported them."""

    peak: int
    """Everything."""
    without_scratch: int
    """Without what one operation allocated and freed: its kernel's scratch memory."""


class _Operations(TorchDispatchMode):
    """Puts a range around every operation, so that the profiler's events say which one they are
    of. What Inductor generated stays outside: its buffers belong to no operation."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with record_function(_OPERATION):
            return func(*args, **(kwargs or {}))


def profiled(prepare: Callable[[], Callable[[], object]]) -> Allocations:
    """The profiler's account of a step.

    Args:
        prepare: makes everything the step needs and returns it. It is profiled too: the profiler
            does not know the size, so not the free, of what was allocated before it began.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step = prepare()
        started_ns = time.time_ns()
        with _Operations():
            step()
    tree: Any = found.profiler
    events = sorted(_events(tree.kineto_results.experimental_event_tree(), 0))
    scratch = _scratch(events)
    return Allocations(_peak(events, started_ns, set()), _peak(events, started_ns, scratch))


def _events(nodes: Iterable[Any], operation: int) -> list[Event]:
    """Every allocation and free below ``nodes``."""
    found: list[Event] = []
    for node in nodes:
        if node.tag.name == "Allocation":
            fields = node.extra_fields
            found.append((node.start_time_ns, fields.alloc_size, fields.ptr, operation))
        else:
            inside = operation or (id(node) if node.name == _OPERATION else 0)
            found += _events(node.children, inside)
    return found


def _scratch(events: list[Event]) -> set[int]:
    rows: set[int] = set()
    born: dict[int, int] = {}
    for row, (_, size, address, operation) in enumerate(events):
        if size > 0:
            born[address] = row
        elif address in born:
            start = born.pop(address)
            if operation and events[start][3] == operation:
                rows |= {start, row}
    return rows


def _peak(events: list[Event], started_ns: int, without: set[int]) -> int:
    live = peak = 0
    for row, (time_ns, size, _, _) in enumerate(events):
        if row not in without:
            live += size
            peak = max(peak, live) if time_ns >= started_ns else 0
            live = live if time_ns >= started_ns else 0
    return peak


def tracked(step: Callable[[], object], *known: object) -> dict[str, int]:
    """`MemTracker`'s bytes at the peak by its own categories, and their ``Total``.

    Args:
        step: one training step.
        known: the model, the optimizer and the tensors that exist before it.
    """
    tracker = MemTracker()
    tracker.track_external(*known)
    with tracker:
        step()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    return {getattr(kind, "value", kind): size for kind, size in peak.items()}
