"""Count of kernel launches of a profiled step on a GPU, or of dispatched operations on a CPU."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_LAUNCH = re.compile(r"(cu|cuda|hip)(Ext|Module)*(Launch(Cooperative)?Kernel|GraphLaunch)")
"""Names of launch calls of the CUDA and HIP libraries; copies and the profiler's own annotations do
not match."""


def launches(events: Iterable[Any]) -> int:
    """Count kernel launches on a GPU (a CUDA graph counts once), or innermost ATen calls on a CPU.

    Args:
        events: events of a profile, as `torch.profiler.profile.events` returns them.
    """
    found = list(events)
    on_gpu = sum(1 for event in found if _LAUNCH.match(event.name))
    return on_gpu or sum(1 for e in found if e.name.startswith("aten::") and not e.cpu_children)
