"""``wb.open(path)``: any saved record or allocator snapshot, as the view it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.records import (
    GradientFlow,
    GraphRecord,
    MemoryRecord,
    RecordError,
    read_record,
)

SUFFIX = ".safetensors"


def open_record(path: str | Path) -> Any:
    """Open a record written by ``view.save(path)``, or an allocator snapshot (``.pickle``).

    Returns:
        A `GraphView`, `GraphDiffView`, `GradientFlowView` or `MemoryView`.

    Raises:
        FileNotFoundError: there is no such file.
        RecordError: the file is neither; the message says what was found.
    """
    target = Path(path).expanduser()
    if not target.is_file():
        raise FileNotFoundError(f"no such file: {target}")
    if target.suffix in {".pickle", ".pkl"}:
        from workbench.memory import memory

        return memory(target)
    try:
        record = read_record(target.read_bytes())
    except RecordError as error:
        raise RecordError(
            f"{target.name}: {error}; wb.open reads what view.save(path) wrote, and allocator "
            f"snapshots named .pickle"
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
