"""``wb.open(path)``: any saved record or allocator snapshot, as the view it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.memory.files.snapshot import WRITTEN, existing_file, is_snapshot
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
from workbench.records.file import check_size, read_record_file
from workbench.trust import printable


def open_record(path: str | Path) -> Any:
    """Open a record written by ``view.save(path)``, or an allocator snapshot.

    Returns:
        A `GraphView`, `GraphDiffView`, `GradientFlowView`, `MemoryView`, `CompileView` or
        `DtypeView`.

    Raises:
        FileNotFoundError: there is no such file.
        RecordError: it is a folder, neither of these, or larger than `LARGEST_BYTES`; the message
            says what was found.
    """
    target = existing_file(path)
    if is_snapshot(target):
        from workbench.memory import memory

        return memory(target)
    check_size(target)
    try:
        record = read_record_file(target, Record)
    except RecordError as error:
        raise RecordError(
            f"{printable(target.name)} is no record or allocator snapshot: {error}. {WRITTEN}"
        ) from None
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
    raise RecordError(f"{target.name} holds a {record.schema} record, which has no view of its own")
