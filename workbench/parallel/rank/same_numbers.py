"""Random numbers of an optimizer's step, which all ranks must draw identically.

Ranks draw dropout from streams of their own. An optimizer that adds noise (SGLD, stochastic
rounding) would add other noise on each rank, and under `ddp` nothing would ever make their weights
the same again. So in its step all ranks draw what the first rank does, which has the stream of a
single process.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
import torch.distributed as dist


@contextmanager
def numbers_of_first_rank(device: torch.device) -> Generator[None]:
    """Draw the same numbers on all ranks inside; afterwards each has its own stream again.

    Args:
        device: the device of this rank.
    """
    on_gpu = device.type == "cuda"
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if on_gpu else [])]
    for state in states:
        dist.broadcast(state, 0)
    if dist.get_rank() == 0:
        yield
        return
    with torch.random.fork_rng([device] if on_gpu else []):
        torch.set_rng_state(states[0])
        if on_gpu:
            torch.cuda.set_rng_state(states[1], device)
        yield
