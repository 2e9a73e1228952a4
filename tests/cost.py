"""What work costs, for tests of how that grows: no figure of one machine is a limit."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def cost(work: Callable[[], object], times: int = 3) -> float:
    """Least processor time of ``work`` on this thread, in seconds; what waits for it costs nothing.

    Garbage is collected before and not meanwhile: how much of it there is depends on other tests.
    """
    return min(_cost(work) for _ in range(times))


def _cost(work: Callable[[], object]) -> float:
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        began = time.thread_time()
        work()
        return time.thread_time() - began
    finally:
        if was_on:
            gc.enable()
