"""Whether others use the machine: then processor time is judged, not the clock."""

from __future__ import annotations

import time

from tests.benchmarks.table import median

QUIET = 1.1
"""Wall time over processor time of one thread, up to which wall times mean something."""
_ROUNDS, _TURNS = 9, 5_000_000


def is_quiet() -> bool:
    """As far as some work on one thread tells."""
    return median([_slowed() for _ in range(_ROUNDS)]) <= QUIET


def _slowed() -> float:
    wall, processor = time.perf_counter(), time.thread_time()
    sum(range(_TURNS))
    return (time.perf_counter() - wall) / (time.thread_time() - processor)
