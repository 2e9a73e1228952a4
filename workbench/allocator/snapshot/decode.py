"""Open allocator snapshots: an untrusted file, or the live allocator's own.

A file is unpickled in a separate process (`workbench.allocator.snapshot.unpickle`), which may build
plain data only. This side never unpickles: it gets columns of numbers in a temporary file, and
checks each before it is used (`workbench.allocator.snapshot.assemble`). A live snapshot comes from
torch in this same process and takes the same path without the separate process.

The limits for a file of ``n`` bytes, where ``n`` is 4 GiB at most (`LARGEST_BYTES`):

- *memory*: its reader maps 512 MiB and 16 ``n``, or three quarters of what this machine or its
  container has, whichever is less;
- *time*: 30 s and 1 s for every 4 MiB of ``n``, of both CPU time and wall-clock time;
- *output*: 16 MiB and 4 ``n`` of columns, and this side reads no more; texts are truncated at 4,096
  letters, a reason at 400 bytes;
- *blocks*: ``n``, however often a file repeats a list of them;
- *depth*: as deep as memory allows. Where the schema has no place for nested data, it is not read;
  where nested data must be compared or hashed (a key, frames that hold themselves), the reader runs
  out of stack and the file is refused.

The kernel enforces the reader's limits on memory, CPU time and output on Linux, and the last two on
macOS; Windows has no such limits, and there only the wall-clock limit ends a reader. It leaves no
core file, and may start no process unless it runs as root, to whom no such limit applies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from array import array
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from workbench.allocator.snapshot.assemble import TYPES, Arrays, assemble
from workbench.allocator.snapshot.columns import Columns, columns_of
from workbench.allocator.snapshot.plain import RefusedError, settings_of, text
from workbench.allocator.snapshot.snapshot import Snapshot
from workbench.allocator.snapshot.unpickle import FAILED, MAGIC, REFUSED
from workbench.processes import run_process
from workbench.records import RecordError
from workbench.records.file import LARGEST_BYTES, named_file
from workbench.trust import OpenFile, harmless, printable

_ROOT = str(Path(__file__).resolve().parents[3])
_START = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from workbench.allocator.snapshot.unpickle import run; run()"
)
_MEMORY_BASE, _MEMORY_PER_BYTE = 512 << 20, 16
"""A recorded trace takes 4 to 9 times its file's size as dictionaries."""
_OUTPUT_BASE, _OUTPUT_PER_BYTE = 16 << 20, 4
"""An event is 30 bytes or more in a file and 41 as columns."""
_SECONDS_BASE, _BYTES_PER_SECOND = 30, 4 << 20
"""A tenth of the speed measured in ``tests/benchmarks/test_snapshot_decode.py``."""
_LONGEST_REASON = 400
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where Linux stores the memory limit of a container, in control groups of version 2 and 1."""


class _EndedError(Exception):
    """The reader did not end by itself."""


def read(path: str | os.PathLike[str], device: int | None = None) -> Snapshot:
    """Read one device of an allocator snapshot file (``torch.cuda.memory._dump_snapshot``).

    Args:
        path: the file; a pickle of any protocol.
        device: device index; by default the one with the most events, then segments.

    Raises:
        FileNotFoundError: no file at ``path``.
        RecordError: it is too large, not a snapshot, does not contain ``device``, or requests more
            than plain data of its size may need.
    """
    with named_file(path, "a snapshot") as file:
        return read_open(file, device)


def read_open(file: OpenFile, device: int | None = None) -> Snapshot:
    """As `read`, for a file that is already open."""
    if device is not None and device < 0:
        raise RecordError(f"devices are counted from 0, so there is no cuda:{device}")
    size = file.size
    if size > LARGEST_BYTES:
        raise RecordError(
            f"{file.name} has {size / 2**30:.1f} GiB; snapshots up to {LARGEST_BYTES / 2**30:g} "
            "GiB are read: record fewer events (max_entries=) or without stacks (context=None)"
        )
    try:
        with tempfile.TemporaryFile() as answer:
            _run(file.rewound(), answer, size, device)
            found = _parse(answer, _OUTPUT_BASE + _OUTPUT_PER_BYTE * size)
    except RefusedError as error:
        raise RecordError(f"{file.name} is not a CUDA allocator snapshot: {error}") from None
    except _EndedError as error:
        raise RecordError(f"{file.name} could not be read: {error}") from None
    if (
        device is not None
        and found.other_devices
        and not found.num_events + len(found.segment_bytes)
    ):
        names = ", ".join(f"cuda:{index}" for index in found.other_devices[:20])
        raise RecordError(f"{file.name} holds {names}, not cuda:{device}: choose one of these")
    return found


def of_live(snapshot: Any, device: int | None = None) -> Snapshot:
    """Return one device of what ``torch.cuda.memory._snapshot()`` returned in this process.

    Raises:
        RecordError: its schema is not known.
    """
    try:
        columns = columns_of(snapshot, device)
        arrays = {name: _array(column) for name, column in columns.arrays.items()}
        return assemble(columns, arrays)
    except RefusedError as error:
        raise RecordError(f"the allocator's snapshot cannot be read: {error}") from None
    except RecursionError:
        raise RecordError("the allocator's snapshot is nested too deeply to be read") from None


def _run(source: int, answer: IO[bytes], size: int, device: int | None) -> None:
    """Unpickle ``source`` in a separate process, into ``answer``."""
    seconds = _SECONDS_BASE + size // _BYTES_PER_SECOND
    bounds = (
        min(_MEMORY_BASE + _MEMORY_PER_BYTE * size, _memory_of_machine()),
        seconds,
        _OUTPUT_BASE + _OUTPUT_PER_BYTE * size,
    )
    numbers = (-1 if device is None else device, size, *bounds)
    command = [sys.executable, "-I", "-S", "-c", _START, _ROOT, *map(str, numbers)]
    with tempfile.TemporaryFile() as errors:
        try:
            done = run_process(command, stdin=source, stdout=answer, stderr=errors, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise _EndedError(f"it takes longer than {seconds} s") from None
        errors.seek(0)
        reason = errors.read(_LONGEST_REASON).decode("ascii", "replace")
    if done.returncode == REFUSED:
        raise RefusedError(_sentence(reason))
    if done.returncode == FAILED:
        raise _EndedError(_sentence(reason))
    if done.returncode in (-11, -10, -7):  # SIGSEGV, and SIGBUS of macOS and Linux
        raise RefusedError("it is nested too deeply to be read")
    if done.returncode != 0:
        raise _EndedError(_ended(done.returncode, seconds))


def _ended(status: int, seconds: int) -> str:
    """Return why a reader ended without a reason; a negative status is a signal's."""
    if status == -24:  # SIGXCPU, which Windows does not name
        return f"it takes longer than {seconds} s of processor time"
    if status == -9:
        return "the system ended its reader, which happens when memory runs out"
    return f"it ended its reader (status {status})"


def _parse(answer: IO[bytes], largest: int) -> Snapshot:
    """Return the snapshot that a reader wrote; everything is checked before it is used."""
    answer.seek(0)
    data = answer.read(largest + 1)
    try:
        columns, arrays = _unpack(data)
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise RefusedError("its reader returned no columns") from None
    return assemble(columns, arrays)


def _unpack(data: bytes) -> tuple[Columns, Arrays]:
    if data[:8] != MAGIC:
        raise ValueError
    at = 16 + int.from_bytes(data[8:16], "little")
    header: dict[str, Any] = json.loads(data[16:at])
    arrays: dict[str, Any] = {}
    for name, (code, length) in header["columns"].items():
        if TYPES[name] != code or length < 0:
            raise ValueError
        arrays[name] = np.frombuffer(data, code, length, at)
        at += arrays[name].nbytes
    columns = Columns(
        device=int(header["device"]),
        other_devices=[int(index) for index in header["other_devices"]],
        settings=settings_of(header["settings"]),
        num_unknown=int(header["num_unknown"]),
        pools=[(int(first), int(second)) for first, second in header["pools"]],
        strings=[harmless(text(one)) for one in header["strings"]],
    )
    return columns, arrays


def _array(column: array[int]) -> Any:
    """Return a column as a numpy array; an empty column has no buffer."""
    return np.frombuffer(column, column.typecode) if column else np.empty(0, column.typecode)


def _memory_of_machine() -> int:
    """Return three quarters of this machine's or container's memory in bytes, if known."""
    known = [1 << 62]
    with suppress(AttributeError, OSError, ValueError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in _CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # "max" is not a number, and no limit
            known.append(int(limit.read_text()))
    return min(known) // 4 * 3


def _sentence(reason: str) -> str:
    """Return a reason as one printable line."""
    return " ".join(printable(" ".join(reason.split())).split()) or "its reader did not say why"
