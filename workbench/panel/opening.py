"""``wb.open(path)``: any saved record or allocator snapshot, as the view it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.memory.files.snapshot import WRITTEN, is_snapshot, opened_file, read_snapshot
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
from workbench.trust import OpenFile, printable


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
    with opened_file(path) as file:
        name = printable(file.name)
        record = _record_in(file)
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


def _record_in(file: OpenFile) -> Record:
    if is_snapshot(file):
        return read_snapshot(file)
    check_size(file)
    try:
        return read_record_file(file, Record)
    except RecordError as error:
        raise RecordError(
            f"{printable(file.name)} is no record or allocator snapshot: {error}. {WRITTEN}"
        ) from None
