"""Frozen, plain-data records: what crosses to the browser or the disk. No torch here."""

from workbench.records.base import Record, RecordError, read_record
from workbench.records.certificate import Certificate
from workbench.records.compare import ComparedArm, CompareRecord
from workbench.records.compile import (
    PHASES,
    CompiledKernel,
    CompiledRegion,
    CompileRecord,
    CompileSwitch,
    GraphBreak,
    Recompile,
)
from workbench.records.dtypes import DTYPE_KINDS, DTYPE_PHASES, DtypeRecord, DtypeRow
from workbench.records.flow import NOT_MEASURED, FlowRow, GradientFlow
from workbench.records.graph import (
    INNER_ENDS,
    NODE_KINDS,
    STORAGE_KINDS,
    Branch,
    GraphModule,
    GraphNode,
    GraphRecord,
    NonFinite,
    Unreached,
)
from workbench.records.graph_diff import DIFF_STATES, DiffSide, GraphDiff
from workbench.records.memory import (
    CATEGORIES,
    EVENT_KINDS,
    GROWTHS,
    POOLS,
    MemoryChart,
    MemoryRecord,
    Phase,
)
from workbench.records.panel import (
    Badge,
    CaptureInfo,
    CarryRow,
    CodeLine,
    ExperimentState,
    Fact,
    Failure,
    Marker,
    ModeChoice,
    ModeState,
    NewerModel,
    RunSummary,
    ScheduleState,
)
from workbench.records.plain import to_json
from workbench.records.remedy import Remedy
from workbench.records.source import SourceLine, source_line

__all__ = [
    "CATEGORIES",
    "DIFF_STATES",
    "DTYPE_KINDS",
    "DTYPE_PHASES",
    "EVENT_KINDS",
    "GROWTHS",
    "INNER_ENDS",
    "NODE_KINDS",
    "NOT_MEASURED",
    "PHASES",
    "POOLS",
    "STORAGE_KINDS",
    "Badge",
    "Branch",
    "CaptureInfo",
    "CarryRow",
    "Certificate",
    "CodeLine",
    "CompareRecord",
    "ComparedArm",
    "CompileRecord",
    "CompileSwitch",
    "CompiledKernel",
    "CompiledRegion",
    "DiffSide",
    "DtypeRecord",
    "DtypeRow",
    "ExperimentState",
    "Fact",
    "Failure",
    "FlowRow",
    "GradientFlow",
    "GraphBreak",
    "GraphDiff",
    "GraphModule",
    "GraphNode",
    "GraphRecord",
    "Marker",
    "MemoryChart",
    "MemoryRecord",
    "ModeChoice",
    "ModeState",
    "NewerModel",
    "NonFinite",
    "Phase",
    "Recompile",
    "Record",
    "RecordError",
    "Remedy",
    "RunSummary",
    "ScheduleState",
    "SourceLine",
    "Unreached",
    "read_record",
    "source_line",
    "to_json",
]
