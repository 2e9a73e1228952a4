"""``wb.open(path)``: any saved record or allocator snapshot, as the view it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.memory.files.snapshot import is_snapshot
from workbench.records import (
    GradientFlow,
    GraphRecord,
    MemoryRecord,
    Record,
    RecordError,
)
from workbench.records.file import check_size, read_record_file

SUFFIX = ".safetensors"


def open_record(path: str | Path) -> Any:
    """Open a record written by ``view.save(path)``, or an allocator snapshot.

    Returns:
        A `GraphView`, `GraphDiffView`, `GradientFlowView` or `MemoryView`.

    Raises:
        FileNotFoundError: there is no such file.
        RecordError: the file is neither, or larger than `LARGEST_BYTES`; the message says what was
            found.
    """
    target = Path(path).expanduser()
    if not target.is_file():
        raise FileNotFoundError(f"no such file: {target}")
    if is_snapshot(target):
        from workbench.memory import memory

        return memory(target)
    check_size(target)
    try:
        record = read_record_file(target, Record)
    except RecordError as error:
        raise RecordError(
            f"{target.name}: {error}; wb.open reads what view.save(path) wrote, and allocator "
            "snapshots"
        ) from error
    if isinstance(record, GraphRecord):
        from workbench.graph import graph

        return graph(record)
    if isinstance(record, GradientFlow):
        from workbench.graph import GradientFlowView

        return GradientFlowView(record)
    if isinstance(record, MemoryRecord):
        from workbench.memory import memory

        return memory(record)
    raise RecordError(f"{target.name} holds a {record.schema} record, which has no view of its own")
