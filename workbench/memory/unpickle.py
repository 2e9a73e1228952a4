"""Reads an allocator snapshot in a process of its own and writes plain columns to stdout.

Runs as a script, on the standard library alone: ``python -I unpickle.py FILE``. A snapshot is a
pickle, and a pickle is a program. This one may build dictionaries, lists, tuples, strings and
numbers and nothing else: looking up any name, any extension code and any persistent object is
refused, so nothing in the file is ever called. What remains is a file that asks for too much memory
or time; the limits set here and the caller's timeout end that, and only this process with it.

Output: one line of JSON (``{"columns": {name: length}, "strings": [...], ...}``), then the columns
as native int64 in that order. `columns_of` is also used in the kernel, on the snapshot of a live
CUDA allocator.
"""

from __future__ import annotations

import json
import pickle
import sys
from array import array
from pathlib import Path
from typing import Any, BinaryIO

ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
)
"""Trace actions that are kept; ``trace_action`` holds the index. Unknown actions are skipped."""

STATES = {"active_allocated": 0, "active_pending_free": 1, "active_awaiting_free": 1, "inactive": 2}
COLUMNS = (
    "trace_action",
    "trace_address",
    "trace_bytes",
    "trace_stream",
    "trace_time_us",
    "trace_source",
    "segment_address",
    "segment_bytes",
    "segment_stream",
    "segment_pool",
    "block_segment",
    "block_address",
    "block_bytes",
    "block_requested",
    "block_state",
    "block_source",
)
_MEMORY_BASE, _MEMORY_PER_BYTE = 1 << 30, 40
_LIBRARY_PARTS = ("site-packages", "dist-packages", "/torch/", "<frozen", "??")


class RefusedError(Exception):
    """The file asks for something a snapshot never needs."""


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that can only build plain containers, strings and numbers."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every global."""
        raise RefusedError(f"it asks for the Python object {module}.{name}"[:200])

    def persistent_load(self, pid: Any) -> Any:
        """Refuse every persistent object."""
        raise RefusedError(f"it asks for a persistent object {type(pid).__name__}")


def load(stream: BinaryIO) -> dict[str, Any]:
    """The snapshot in ``stream``.

    Raises:
        RefusedError: the pickle needs more than plain data, or is no allocator snapshot.
    """
    try:
        snapshot = PlainUnpickler(stream).load()
    except RefusedError:
        raise
    except Exception as error:  # noqa: BLE001 - a hostile pickle may raise anything at all
        raise RefusedError(
            f"it is no complete pickle ({type(error).__name__}: {error})"[:200]
        ) from None
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("segments"), list):
        raise RefusedError("it holds no 'segments' list")
    return snapshot


def columns_of(snapshot: dict[str, Any], device: int | None = None) -> dict[str, Any]:
    """One device of a snapshot as columns; parsed tolerantly, because the schema keeps growing.

    Args:
        snapshot: what ``torch.cuda.memory._snapshot()`` returns, of any schema so far.
        device: device index; by default the one with the most events, then segments.
    """
    traces = snapshot.get("device_traces") or []
    segments = [s for s in snapshot["segments"] if isinstance(s, dict)]
    chosen = device if device is not None else _busiest(traces, segments)
    out: dict[str, Any] = {name: array("q") for name in COLUMNS}
    sources: dict[tuple[str, int, str], int] = {}
    if chosen < len(traces):
        _add_trace(out, traces[chosen], sources)
    for segment in segments:
        if segment.get("device", 0) == chosen:
            _add_segment(out, segment, sources)
    devices = {s.get("device", 0) for s in segments} | {i for i, t in enumerate(traces) if t}
    out["device"] = chosen
    out["other_devices"] = sorted(devices - {chosen})
    out["sources"] = [list(source) for source in sources]
    return out


def _busiest(traces: list[Any], segments: list[dict[str, Any]]) -> int:
    count: dict[int, tuple[int, int]] = {i: (len(t), 0) for i, t in enumerate(traces)}
    for segment in segments:
        index = int(segment.get("device", 0))
        events, seen = count.get(index, (0, 0))
        count[index] = (events, seen + 1)
    return max(count, key=count.__getitem__, default=0)


def _add_trace(out: dict[str, Any], trace: list[Any], sources: dict[Any, int]) -> None:
    for entry in trace:
        action = entry.get("action")
        if action in ACTIONS and "addr" in entry:
            out["trace_action"].append(ACTIONS.index(action))
            out["trace_address"].append(_signed(entry["addr"]))
            out["trace_bytes"].append(int(entry["size"]))
            out["trace_stream"].append(_signed(entry.get("stream", 0)))
            out["trace_time_us"].append(int(entry.get("time_us", 0)))
            out["trace_source"].append(_source(entry.get("frames"), sources))


def _add_segment(out: dict[str, Any], segment: dict[str, Any], sources: dict[Any, int]) -> None:
    row = len(out["segment_address"])
    out["segment_address"].append(_signed(segment["address"]))
    out["segment_bytes"].append(int(segment["total_size"]))
    out["segment_stream"].append(_signed(segment.get("stream", 0)))
    out["segment_pool"].append(int(segment.get("segment_type") == "large"))
    address = segment["address"]
    for block in segment.get("blocks", []):
        # The oldest schema gives no block addresses: blocks follow each other without gaps.
        history = block.get("history") or [{}]
        out["block_segment"].append(row)
        out["block_address"].append(_signed(block.get("address", address)))
        out["block_bytes"].append(int(block["size"]))
        requested = block.get("requested_size", history[0].get("real_size", block["size"]))
        out["block_requested"].append(int(requested))
        out["block_state"].append(STATES.get(block.get("state"), 2))
        frames = block.get("frames") or history[0].get("frames")
        out["block_source"].append(_source(frames, sources))
        address += block["size"]


def _source(frames: Any, sources: dict[Any, int]) -> int:
    """The first Python frame outside every library, as a row of ``sources``; -1 without one."""
    for frame in frames or ():
        name = str(frame.get("filename", ""))
        is_python = name.endswith(".py") or name.startswith("<ipython")
        if is_python and not any(part in name for part in _LIBRARY_PARTS):
            key = (name[:1000], int(frame.get("line", 0)), str(frame.get("name", ""))[:200])
            return sources.setdefault(key, len(sources))
    return -1


def _signed(value: int) -> int:
    """Addresses and streams are unsigned 64-bit in the file and signed in a record."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _limit(size: int, seconds: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits; the caller's timeout remains
        return
    memory = _MEMORY_BASE + _MEMORY_PER_BYTE * size
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def main(path: Path, seconds: int) -> int:
    """Write the columns of the snapshot at ``path`` to stdout; 3 and a reason on stderr if not."""
    _limit(path.stat().st_size, seconds)
    try:
        with path.open("rb") as stream:
            columns = columns_of(load(stream))
    except RefusedError as error:
        sys.stderr.write(str(error))
        return 3
    except MemoryError:
        sys.stderr.write("it needs more memory than a snapshot of its size can")
        return 3
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, IndexError) as error:
        sys.stderr.write(f"its schema is not one we know ({type(error).__name__}: {error})"[:200])
        return 3
    arrays = [columns.pop(name) for name in COLUMNS]
    header = {"lengths": [len(a) for a in arrays], **columns}
    out = sys.stdout.buffer
    out.write(json.dumps(header).encode() + b"\n")
    for column in arrays:
        out.write(column.tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
