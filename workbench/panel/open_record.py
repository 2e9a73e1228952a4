"""``wb.open(path)``: opens any saved record or allocator snapshot as the matching view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.memory.files.snapshot import record_in
from workbench.records import (
    CompareRecord,
    CompileRecord,
    DtypeRecord,
    GradientFlow,
    GraphRecord,
    MemoryRecord,
    Record,
    RecordError,
)
from workbench.records.file import named_file


def open_record(path: str | Path) -> Any:
    """Open a record written by ``view.save(path)``, or an allocator snapshot.

    Returns:
        A `GraphView`, `GraphDiffView`, `GradientFlowView`, `MemoryView`, `CompileView` or
        `DtypeView`.

    Raises:
        FileNotFoundError: the file does not exist.
        RecordError: the path is a folder, or the file is neither of these or larger than
            `LARGEST_BYTES`; the message says what was found.
    """
    with named_file(path, "a record") as file:
        name, record = file.name, record_in(file, Record)
    if isinstance(record, GraphRecord):
        from workbench.graph import graph

        return graph(record)
    if isinstance(record, GradientFlow):
        from workbench.graph import GradientFlowView

        return GradientFlowView(record)
    if isinstance(record, MemoryRecord):
        from workbench.memory import memory

        return memory(record)
    if isinstance(record, CompareRecord):
        from workbench.compare import ComparisonView

        return ComparisonView(record)
    if isinstance(record, CompileRecord):
        from workbench.dynamo import compile_report

        return compile_report(record)
    if isinstance(record, DtypeRecord):
        from workbench.dtypes import dtypes

        return dtypes(record)
    raise RecordError(f"{name} holds a {record.schema} record, which has no view of its own")
