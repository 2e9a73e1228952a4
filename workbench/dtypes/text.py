"""A record of types as text: one sentence per phase, then a table of operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from workbench.records.dtypes import DTYPE_PHASES

if TYPE_CHECKING:
    from workbench.records.dtypes import DtypeRecord, DtypeRow

HEADINGS = (
    "phase", "operation", "takes", "gives", "computes in", "calls", "modules", "FLOPs", "elements"
)  # fmt: skip
_RIGHT = (5, 6, 7, 8)
"""Columns of numbers."""
_MOST_NAMES = 4
MOST_ROWS = 60
NOTHING = (
    "No operation on floating-point values ran. Run a forward inside "
    "`with wb.dtypes() as types:`, or call wb.dtypes(exp) for a step of an Experiment."
)


@dataclass(frozen=True)
class Line:
    """One operation of one phase with one set of types, summed over all modules."""

    phase: str
    kind: str
    op: str
    takes: str
    gives: str
    computes: str
    calls: int
    modules: tuple[str, ...]
    flops: int
    elements: int


def heading(record: DtypeRecord) -> str:
    """Return the title: ``Types of Net, step 3, under bf16``."""
    under = f", under {record.modes}" if record.modes else ""
    return f"Types of {record.title}{under}"


def computed(row: DtypeRow | Line, *, emulated: bool = False) -> str:
    """Return the compute type of a row in words."""
    if row.kind == "casts":
        return "cast"
    return f"{row.computes or 'unknown'}{', emulated' * emulated}"


def lines_of(rows: Iterable[DtypeRow]) -> list[Line]:
    """Sum up rows that differ only in their module, in the order in which they first ran."""
    found: dict[tuple[str, ...], list[DtypeRow]] = {}
    for row in rows:
        said = computed(row, emulated=row.emulated)
        key = (row.phase, row.kind, row.op, row.takes, row.gives, said)
        found.setdefault(key, []).append(row)
    return [
        Line(
            *key,
            calls=sum(row.calls for row in same),
            modules=tuple(dict.fromkeys(row.module or "unknown" for row in same)),
            flops=sum(row.flops for row in same),
            elements=sum(row.elements for row in same),
        )
        for key, same in found.items()
    ]


def sentences(record: DtypeRecord) -> list[str]:
    """Return one sentence per phase: what ran in which type, and how many casts."""
    lines = lines_of(record.rows)
    return [
        _sentence(phase, [line for line in lines if line.phase == phase])
        for phase in DTYPE_PHASES
        if any(line.phase == phase for line in lines)
    ]


def _sentence(phase: str, lines: Sequence[Line]) -> str:
    total = sum(line.flops for line in lines)
    order = sorted(
        (line for line in lines if line.kind == "computes"),
        key=lambda line: (line.computes, -line.flops, -line.elements),
    )
    groups = [(name, list(same)) for name, same in groupby(order, key=lambda line: line.computes)]
    groups.sort(key=lambda group: (-_flops(group[1]), -sum(line.elements for line in group[1])))
    parts = [_group(name, same, total) for name, same in groups]
    casts = sum(line.calls for line in lines if line.kind == "casts")
    if casts:
        parts.append(f"{casts:,} cast{'s' * (casts != 1)}")
    regions = sum(len(line.modules) for line in lines if line.kind == "compiled")
    if regions:
        parts.append(f"{regions:,} compiled region{'s' * (regions != 1)}, types unknown")
    return f"{phase.capitalize()}: {'; '.join(parts)}."


def _group(name: str, lines: Sequence[Line], total: int) -> str:
    names = list(dict.fromkeys(short_op(line.op) for line in lines))
    more = len(names) - _MOST_NAMES
    listed = ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    share = f" ({_share(_flops(lines), total)} of the FLOPs)" if _flops(lines) else ""
    return f"{listed} in {name}{share}"


def _flops(lines: Iterable[Line]) -> int:
    return sum(line.flops for line in lines)


def short_op(name: str) -> str:
    """Return ``addmm`` for ``aten.addmm``."""
    return name.removeprefix("aten.").strip("_")


def _share(part: int, total: int) -> str:
    if not total or not part:
        return ""
    percent = 100 * part / total
    return "< 0.1 %" if percent < 0.1 else f"{percent:.3g} %"


def table(rows: Iterable[DtypeRow]) -> list[tuple[str, ...]]:
    """Return one line per operation and set of types, as texts for the columns of `HEADINGS`.

    Shares refer to the total of the same phase.
    """
    lines = lines_of(rows)
    flops = {phase: _flops(x for x in lines if x.phase == phase) for phase in DTYPE_PHASES}
    elements = {phase: sum(x.elements for x in lines if x.phase == phase) for phase in DTYPE_PHASES}
    found: list[tuple[str, ...]] = []
    for phase in DTYPE_PHASES:
        of_phase = [line for line in lines if line.phase == phase]
        for line in sorted(of_phase, key=lambda one: (-one.flops, -one.elements)):
            found.append(  # noqa: PERF401 - a comprehension of nine columns is harder to read
                (
                    phase,
                    short_op(line.op),
                    line.takes,
                    line.gives,
                    line.computes,
                    f"{line.calls:,}" if line.calls else "",
                    _modules(line.modules),
                    _share(line.flops, flops[phase]),
                    _share(line.elements, elements[phase]),
                )
            )
    return found


def _modules(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{len(paths):,}"


def describe(record: DtypeRecord) -> str:
    """Return the sentences, the table and the notes."""
    if not record.rows:
        return "\n".join([heading(record), NOTHING, *record.notes])
    rows = table(record.rows)
    lines = [heading(record), *sentences(record), "", *_columns([HEADINGS, *rows[:MOST_ROWS]])]
    if len(rows) > MOST_ROWS:
        lines.append(f"… {len(rows) - MOST_ROWS:,} more lines")
    return "\n".join([*lines, *(f"\nNote: {note}" for note in record.notes)])


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
    return [
        "  ".join(
            text.rjust(widths[at]) if at in _RIGHT else text.ljust(widths[at])
            for at, text in enumerate(row)
        ).rstrip()
        for row in rows
    ]
