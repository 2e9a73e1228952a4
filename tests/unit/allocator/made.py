"""Snapshots of any size, made by hand: a training loop's pattern of events, with stacks.

Every step allocates blocks of a few sizes while it goes forward and frees them in reverse order
while it goes back; a slot is one block of a 20 MiB segment and is used again. That is not the
allocator's rule for where a block goes (the simulator's tests have that), but the trace and the
segments at its end agree with each other.
"""

from __future__ import annotations

import pickle
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

MIB = 1 << 20
BASE = 0x7F00_0000_0000
SEGMENT = 20 * MIB
SIZES = (512, 2048, 40_960, 262_144, 1_048_576, 4_194_304)
PER_STEP = 600


def made_stacks(count: int = 400, depth: int = 30) -> list[list[dict[str, Any]]]:
    """Distinct stacks, innermost first, that share their outer frames' dictionaries."""
    chance = random.Random(0)
    frames = [
        {"name": f"forward_{row}", "filename": f"/home/me/net_{row % 40}.py", "line": row}
        for row in range(count * 5)
    ]
    outer = frames[-depth // 2 :]
    return [chance.sample(frames[:-depth], depth - len(outer)) + outer for _ in range(count)]


def made_snapshot(
    num_events: int,
    *,
    own_lists: bool = True,
    with_stacks: bool = True,
    per_step: int = PER_STEP,
) -> Any:
    """What ``torch.cuda.memory._snapshot()`` returns after ``num_events`` events or a few more.

    Args:
        num_events: at least so many entries in the trace of device 0.
        own_lists: every event has a list of its own of shared frames, as torch makes them; else
            equal stacks are one list.
        with_stacks: whether there are stacks at all.
        per_step: blocks allocated and freed in a step.
    """
    stacks = made_stacks() if with_stacks else [[]]
    free: dict[int, list[int]] = {size: [] for size in SIZES}
    segments: list[list[int]] = []  # address, size of its blocks, where the unused rest begins
    open_segment: dict[int, list[int]] = {}
    trace: list[dict[str, Any]] = []
    live: dict[int, tuple[int, list[Any]]] = {}

    def note(action: str, address: int, size: int, frames: list[Any]) -> None:
        trace.append(
            {
                "action": action, "addr": address, "size": size, "stream": 0,
                "time_us": 1_700_000_000_000_000 + 3 * len(trace),
                "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0),
                "frames": list(frames) if own_lists else frames,
            }
        )  # fmt: skip

    while len(trace) < num_events:
        taken: list[int] = []
        for number in range(per_step):
            size, frames = SIZES[number % len(SIZES)], stacks[number % len(stacks)]
            if not free[size]:
                last = open_segment.get(size)
                if last is None or last[2] + size > last[0] + SEGMENT:
                    address = BASE + len(segments) * SEGMENT
                    last = open_segment[size] = [address, size, address]
                    segments.append(last)
                    note("segment_alloc", address, SEGMENT, frames)
                free[size].append(last[2])
                last[2] += size
            taken.append(free[size].pop())
            live[taken[-1]] = size, frames
            note("alloc", taken[-1], size - 100, frames)
        while taken and len(trace) < num_events:
            address = taken.pop()
            size, frames = live.pop(address)
            note("free_requested", address, size - 100, frames)
            note("free_completed", address, size - 100, frames)
            free[size].append(address)
    return {
        "segments": [_segment(*segment, live) for segment in segments],
        "device_traces": [trace],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
        "external_annotations": [
            {"stage": stage, "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": at}
            for at, stage in enumerate(("START", "END"))
        ],
    }


def _segment(
    start: int, size: int, rest: int, live: dict[int, tuple[int, list[Any]]]
) -> dict[str, Any]:
    ends = [*range(start, rest, size), rest, start + SEGMENT]
    blocks: list[dict[str, Any]] = []
    held = 0
    for at, end in pairwise(ends):
        if at == end:
            continue
        held += (end - at) * (at in live)
        blocks.append(
            {
                "address": at, "size": end - at, "requested_size": end - at - 100,
                "state": "active_allocated" if at in live else "inactive",
                "frames": live.get(at, (0, []))[1],
            }
        )  # fmt: skip
    return {
        "device": 0, "address": start, "total_size": SEGMENT, "allocated_size": held,
        "active_size": held, "requested_size": held, "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
    }  # fmt: skip


def made_file(path: Path, num_events: int, **how: Any) -> Path:
    """Write `made_snapshot` as torch would: pickle protocol 4, one object after the other."""
    with path.open("wb") as stream:
        pickle.dump(made_snapshot(num_events, **how), stream, protocol=4)
    return path
