"""From a snapshot's dictionaries to columns: one device, every event, every schema so far.

Schema: ``torch/cuda/_memory_viz.py`` and ``torch/csrc/cuda/Module.cpp`` of PyTorch. It grew over
the years, so an unknown key is ignored, an unknown action is counted, and what older files leave
out has a default. A value that must be a number and is not ends the reading: a guess would draw a
picture of memory that never existed. Standard library only, because it also runs in the process
that reads files; `workbench.allocator.snapshot.assemble` checks its result.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from workbench.allocator.snapshot.event_names import ACTIONS, OOM, SNAPSHOT
from workbench.allocator.snapshot.plain import (
    RefusedError,
    Row,
    counts,
    missing,
    numbers,
    rows_of,
    settings_of,
    signed,
    text,
    values_of,
)
from workbench.allocator.snapshot.pools import Pools
from workbench.allocator.snapshot.segments import segment_columns
from workbench.allocator.snapshot.stacks import Stacks

_CODES = {name: code for code, name in enumerate(ACTIONS)}
_EVENT = "trace entry"
_STAGES = {"START": 0, "END": 1}
_BATCH = 1 << 12
"""Entries whose keys are all read while they are still in the processor's cache."""


@dataclass
class Columns:
    """The input from which `workbench.allocator.snapshot.assemble` makes a `Snapshot`."""

    device: int
    other_devices: list[int]
    settings: dict[str, Any]
    num_unknown: int = 0
    pools: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    strings: list[str] = field(default_factory=list[str])
    arrays: dict[str, array[int]] = field(default_factory=dict[str, "array[int]"])


def columns_of(snapshot: Any, device: int | None = None, most: int = sys.maxsize) -> Columns:
    """Convert one device of a snapshot to columns.

    Args:
        snapshot: what ``torch.cuda.memory._snapshot()`` returns, of any schema so far, or the list
            of segments that ``torch.cuda.memory_snapshot()`` returns.
        device: device index; by default the one with the most events, then segments.
        most: a limit on the number of blocks. Lists in a pickle may repeat each other, so that a
            short file expands into more of them than there are bytes in it; a valid one cannot.

    Raises:
        RefusedError: it is not an allocator snapshot.
    """
    if type(snapshot) is list:
        snapshot = {"segments": snapshot}
    if type(snapshot) is not dict or type(snapshot.get("segments")) is not list:
        raise RefusedError("it holds no 'segments' list")
    segments = rows_of(snapshot["segments"], "segment")
    owners = counts(numbers(segments, "device", "segment", 0), "device", "segment")
    traces = snapshot.get("device_traces") or []
    if type(traces) is not list:
        raise RefusedError("its schema is not one we know: 'device_traces' is no list")
    events = [len(trace) if type(trace) is list else 0 for trace in traces]
    held = set(owners) | {index for index, count in enumerate(events) if count}
    chosen = _busiest(events, owners) if device is None else device
    columns = Columns(
        chosen, sorted(held - {chosen}), settings_of(snapshot.get("allocator_settings"))
    )
    stacks, pools = Stacks(), Pools()
    trace = traces[chosen] if chosen < len(traces) else []
    rows = rows_of(trace, _EVENT)
    for at in range(0, len(rows) or 1, _BATCH):
        columns.num_unknown += _add_trace(columns.arrays, rows[at : at + _BATCH], stacks, pools)
    mine = [row for row, owner in zip(segments, owners, strict=True) if owner == chosen]
    columns.arrays |= segment_columns(mine, stacks, pools, most)
    columns.arrays |= _annotations(snapshot.get("external_annotations"), chosen, stacks)
    for name in ("frame_file", "frame_line", "frame_name", "stack_start", "stack_frame"):
        columns.arrays[name] = getattr(stacks, name)
    columns.pools, columns.strings = list(pools.rows), list(stacks.strings)
    return columns


def _busiest(events: Sequence[int], owners: Sequence[int]) -> int:
    found = {index: [count, 0] for index, count in enumerate(events)}
    for owner in owners:
        found.setdefault(owner, [0, 0])[1] += 1
    return max(found, key=found.__getitem__, default=0)


def _add_trace(out: dict[str, array[int]], trace: list[Row], stacks: Stacks, pools: Pools) -> int:
    """Add the columns of some entries to ``out``; return how many have an unknown action."""
    codes = _codes(trace)
    known = [code for code in codes if code is not None]
    if len(known) < len(codes):
        trace = [row for row, code in zip(trace, codes, strict=True) if code is not None]
    sizes = signed(_of_events(trace, known, "size"), "size", _EVENT)
    found = {
        "action": array("B", known),
        "address": signed(_of_events(trace, known, "addr"), "addr", _EVENT),
        "size": counts(sizes, "size", _EVENT),
        "stream": numbers(trace, "stream", _EVENT, 0),
        "time_us": numbers(trace, "time_us", _EVENT, 0),
        "trace_pool": pools.column(trace, "pool_id"),
        "trace_stack": stacks.column(values_of(trace, "frames")),
    }
    for name, column in found.items():
        out.setdefault(name, array(column.typecode)).extend(column)
    return len(codes) - len(known)


def _codes(trace: list[Row]) -> list[int | None]:
    """Return the code of each entry's action; None if it is unknown."""
    try:
        actions = list(map(itemgetter("action"), trace))
    except KeyError:
        actions = [row.get("action") for row in trace]
    if set(map(type, actions)) - {str}:
        actions = [text(action) for action in actions]
    try:
        return list(map(_CODES.__getitem__, actions))
    except KeyError:
        return [_CODES.get(action) for action in actions]


def _of_events(trace: list[Row], codes: list[int], key: str) -> list[Any]:
    """Return ``key`` of each entry. The address of an ``oom`` is the device's free bytes."""
    try:
        return list(map(itemgetter(key), trace))
    except KeyError:
        return [_of_event(row, code, key) for row, code in zip(trace, codes, strict=True)]


def _of_event(row: Row, code: int, key: str) -> Any:
    if key in row:
        return row[key]
    if code == OOM and key == "addr" and "device_free" in row:
        return row["device_free"]
    if code == SNAPSHOT:
        return 0
    raise missing(key, f"{_EVENT} {ACTIONS[code]!r}")


def _annotations(value: Any, device: int, stacks: Stacks) -> dict[str, array[int]]:
    """Return named moments of the device; entries of another form are left out."""
    rows = [
        row
        for row in (value if type(value) is list else [])
        if type(row) is dict
        and type(row.get("stage")) is str
        and row["stage"] in _STAGES
        and type(row.get("device", device)) is int
        and row.get("device", device) == device
    ]
    return {
        "annotation_time_us": numbers(rows, "time_us", "trace annotation", 0),
        "annotation_is_end": array("B", [_STAGES[row["stage"]] for row in rows]),
        "annotation_name": array("i", [stacks.string(row.get("name")) for row in rows]),
    }
