"""Why a training thread must not share the cores with an idle team of OpenMP threads.

Every thread that runs a parallel CPU operation gets an OpenMP team of its own, and keeps it. The
cell that made the data leaves such a team in the main thread; together with the runner's team there
are then more threads than cores, and libgomp no longer lets any of them spin between operations.
Each parallel region then costs a sleep and a wake-up: a step of a tiny MLP took 700 us instead of
130 us on two cores (torch 2.13). So a thread that begins to wait for a run, and the main thread at
the end of every cell, releases its team. The next parallel operation there creates a new one.

``omp_pause_resource_all`` is part of OpenMP 5.0; the team that it frees is the calling thread's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

_SOFT = 1
"""``omp_pause_soft``: settings such as the number of threads are kept."""


def release_team() -> bool:
    """Release the OpenMP team of the calling thread; return False if that cannot be done."""
    pause = _pause()
    return pause is not None and pause(_SOFT) == 0


@cache
def _pause() -> Callable[[int], int] | None:
    """The function in the libgomp that comes with torch; None with another runtime."""
    for library in Path(torch.__file__).parent.glob("lib/libgomp*.so*"):
        try:
            return ctypes.CDLL(str(library)).omp_pause_resource_all
        except (OSError, AttributeError):  # another build of torch: training is slower, not wrong
            continue
    return None
