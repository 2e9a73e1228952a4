"""How often a profiled step has asked a GPU, or on a CPU the dispatcher, to compute something."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_LAUNCH = re.compile(r"(cu|cuda|hip)(Ext|Module)*(Launch(Cooperative)?Kernel|GraphLaunch)")
"""Calls of the CUDA and HIP libraries; copies and the profiler's own notes are none."""


def launches(events: Iterable[Any]) -> int:
    """Kernels launched on a GPU, a CUDA graph counted once; on a CPU the innermost ATen operations.

    Args:
        events: of a profile, as `torch.profiler.profile.events` gives them.
    """
    found = list(events)
    on_gpu = sum(1 for event in found if _LAUNCH.match(event.name))
    return on_gpu or sum(1 for e in found if e.name.startswith("aten::") and not e.cpu_children)
