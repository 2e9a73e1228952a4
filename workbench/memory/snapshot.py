"""Opens an allocator snapshot file: ``wb.memory("snapshot.pickle")``.

The file is read by `workbench.memory.unpickle` in a process of its own; this side sees columns of
numbers only. Categories stay unknown: a snapshot does not say what a block was for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from workbench.memory import unpickle
from workbench.memory.bridge import snapshot_of
from workbench.memory.from_snapshot import record_of_snapshot
from workbench.records import MemoryRecord, RecordError

LARGEST_BYTES = 4 << 30
SECONDS = 120


def read_snapshot(path: Path) -> MemoryRecord:
    """The record of an allocator snapshot file (``torch.cuda.memory._dump_snapshot``).

    Raises:
        RecordError: the file is too large, no snapshot, or asks for more than plain data.
    """
    columns = _read_columns(path)
    return snapshot_record(columns, title=path.name)


def snapshot_record(columns: dict[str, Any], *, title: str) -> MemoryRecord:
    """The record of a snapshot's columns."""
    return record_of_snapshot(snapshot_of(columns), title=title)


def _read_columns(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    if size > LARGEST_BYTES:
        raise RecordError(
            f"{path.name} has {size / 2**30:.1f} GiB; snapshots up to {LARGEST_BYTES >> 30} GiB "
            "are read: record fewer events (max_entries=) or without stacks (context=None)"
        )
    command = [sys.executable, "-I", unpickle.__file__, str(path.resolve()), str(SECONDS)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)  # noqa: S603 - our own script, no shell
    except subprocess.TimeoutExpired:
        raise RecordError(f"{path.name} could not be read within {SECONDS} s") from None
    if done.returncode != 0:
        why = (
            done.stderr.decode(errors="replace").strip()
            if done.returncode == 3
            else "it ended the reader"
        )
        raise RecordError(f"{path.name} is not a CUDA allocator snapshot: {why}")
    return _parse(done.stdout)


def _parse(data: bytes) -> dict[str, Any]:
    line, _, body = data.partition(b"\n")
    columns: dict[str, Any] = json.loads(line)
    numbers = np.frombuffer(body, dtype=np.int64)
    splits = np.cumsum(columns.pop("lengths"))[:-1]
    columns.update(zip(unpickle.COLUMNS, np.split(numbers, splits), strict=True))
    return columns
