"""Memory use of a training, as scalars of the steps that are sampled anyway.

They are read between two steps, where their meaning is always the same: what a step left behind
(parameters, gradients, optimizer state, and whatever leaks). A read in the middle of a step, as
from another thread, would show the rise and fall within the step at random moments. What a step
needs at its highest is the peak, which the allocator and the operating system record by themselves.

On CUDA, for the experiment's device, in bytes and with torch's own names:

===========================  ============================================================
``memory/allocated``         ``allocated_bytes.all.current``, `torch.cuda.memory_allocated`
``memory/reserved``          ``reserved_bytes.all.current``, `torch.cuda.memory_reserved`
``memory/fragmentation``     ``inactive_split_bytes.all.current``: free blocks in segments that
                             others still use, which `torch.cuda.empty_cache` cannot give back
``memory/allocated_peak``    ``allocated_bytes.all.peak``, `torch.cuda.max_memory_allocated`: since
                             the process began or was last reset; nothing is reset here
===========================  ============================================================

Reserved minus allocated is more than the fragmentation: it also contains blocks that wait for
another stream and whole free segments, which torch does not count separately. Expandable segments
have no ``inactive_split`` (torch omits them). A recording (``wb.memory``) separates all of these.

The counters are kept on the host: reading them is one C++ call (`memory_stats_as_nested_dict`) that
takes the allocator's lock and waits for no kernel.

On a simulated GPU (``experiment.card``) the same names give the values of the simulated allocator,
the peak since the card was set: these are predictions for a GPU that is not present.

On other devices there is no caching allocator to query, and the values logged are those of the
process, named accordingly: ``memory/resident`` (`psutil`, bytes of this process in physical memory,
everything in it included) and ``memory/resident_peak`` (the kernel's high-water mark, since the
process began; omitted if the system does not record it).
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch

from workbench.experiment.loop.measures import on_sample

if TYPE_CHECKING:
    from workbench.experiment import Experiment

log = logging.getLogger("workbench")

_STATUS = Path("/proc/self/status")


def attach(experiment: Experiment) -> Callable[[], None]:
    """Log the memory of ``experiment``'s device from now on; returns a function that ends it.

    The experiment is not kept alive.
    """
    this, ends = weakref.ref(experiment), list[Callable[[], None]]()

    def read(step: int) -> None:
        live = this()
        if live is None:
            return
        try:
            for name, value in memory_of(live).items():
                live.scalars.add(name, step, value)
        except Exception:
            # a counter that cannot be read must not end the user's training
            log.exception("memory is not logged any more")
            end()

    def end() -> None:
        while ends:
            ends.pop()()

    ends.append(on_sample(experiment, read))
    return end


def memory_of(experiment: Experiment) -> dict[str, float]:
    """Return the current memory of an experiment: name of the scalar -> bytes."""
    use = experiment.card_use
    if use is None:
        return memory_now(experiment.device)
    return {
        "memory/allocated": float(use.allocated),
        "memory/reserved": float(use.reserved),
        "memory/fragmentation": float(use.fragmentation),
        "memory/allocated_peak": float(use.peak_allocated),
    }


def memory_now(device: torch.device) -> dict[str, float]:
    """Return the current memory on ``device``: name of the scalar -> bytes.

    Empty for a CUDA device that has not been used yet.
    """
    if device.type == "cuda":
        return from_allocator(torch.cuda.memory_stats_as_nested_dict(device))
    return of_process()


def from_allocator(stats: Mapping[str, Any]) -> dict[str, float]:
    """Return the scalars of a caching allocator's counters.

    Args:
        stats: nested as `torch.cuda.memory_stats_as_nested_dict` returns them; empty before CUDA is
            initialised.
    """
    if not stats:
        return {}
    allocated = stats["allocated_bytes"]["all"]
    return {
        "memory/allocated": float(allocated["current"]),
        "memory/reserved": float(stats["reserved_bytes"]["all"]["current"]),
        "memory/fragmentation": float(stats["inactive_split_bytes"]["all"]["current"]),
        "memory/allocated_peak": float(allocated["peak"]),
    }


def of_process() -> dict[str, float]:
    """Return the resident memory of this process and, if the system records it, its peak so far."""
    now = psutil.Process().memory_info()
    found = {"memory/resident": float(now.rss)}
    highest = getattr(now, "peak_wset", None) or _high_water()  # the first exists only on Windows
    if highest is not None:
        found["memory/resident_peak"] = float(max(highest, now.rss))
    return found


def _high_water() -> int | None:
    """Return the high-water mark in bytes; None if the system does not record it."""
    if sys.platform == "linux":
        # not getrusage: its mark is inherited from the process that started this one
        try:
            text = _STATUS.read_bytes()
        except OSError:
            return None
        _, found, rest = text.partition(b"VmHWM:")
        return int(rest.split(None, 1)[0]) * 1024 if found else None
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on this system
    return None
