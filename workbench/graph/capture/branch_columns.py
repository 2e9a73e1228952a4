"""The branches of a record: the tests of tensor values in Python that shaped a loss's graph."""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.capture.call_columns import Table
from workbench.graph.core.module_owners import OUTSIDE
from workbench.graph.core.number_format import plural
from workbench.graph.forward.branches import MOST, comparison, symbol_of
from workbench.records.graph import Branch
from workbench.records.source import source_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.graph.core.walk import Ints
    from workbench.graph.forward.branches import BranchTest, Number, Repeated
    from workbench.graph.forward.trace_result import TraceResult
    from workbench.records import GraphModule, GraphRecord, SourceLine


_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_MOST_LINES = 12
"""Maximum number of tests that a printed view lists."""


@dataclass(frozen=True)
class Branches:
    """The rows, the record's sources with their lines added, and notes on what was left out."""

    rows: tuple[Branch, ...]
    sources: tuple[SourceLine, ...]
    notes: tuple[str, ...]


def branch_rows(
    trace: TraceResult | None,
    sequence: Ints,
    modules: Sequence[GraphModule],
    sources: tuple[SourceLine, ...],
) -> Branches:
    """Select the tests of tensors that were made on the path to a loss.

    Args:
        trace: what was recorded of its forward, if it was watched.
        sequence: sequence numbers of the nodes of its graph, -1 for leaves.
        modules: the record's table of modules.
        sources: the record's table of sources so far.
    """
    if trace is None or not (trace.branches.tests or trace.branches.fault):
        return Branches((), sources, ())
    table = Table(sources)
    numbers = _Numbers(sequence)
    row_of = {module.path: row for row, module in enumerate(modules)}
    spans = _forwards(trace)
    mine = [one for one in trace.branches.tests if numbers.has(one, spans)]
    rows = tuple(
        Branch(
            condition=one.condition,
            values=values_text(one),
            taken=one.taken,
            module=_module_row(one.module, row_of),
            source=table.row(source_line(*one.place)),
            before=numbers.before(one),
            after=numbers.after(one),
        )
        for one in mine[-MOST:]
    )
    return Branches(rows, tuple(table.items), _notes(trace) if rows else _fault(trace))


class _Numbers:
    """Sequence numbers of a graph, and the row of each."""

    def __init__(self, sequence: Ints) -> None:
        self._rows = np.argsort(sequence, kind="stable")[int((sequence < 0).sum()) :]
        self._sorted = sequence[self._rows]

    def has(self, one: BranchTest, spans: Sequence[tuple[int, int]]) -> bool:
        """Whether test ``one`` was made in a forward of this graph, before its loss was made."""
        if not len(self._sorted) or one.at > self._sorted[-1] + 1:
            return False
        if not 0 <= one.forward < len(spans):
            return bool(self._sorted[0] <= one.at <= self._sorted[-1])
        first, last = np.searchsorted(self._sorted, spans[one.forward])
        return bool(last > first)

    def before(self, one: BranchTest) -> int:
        """The latest node of this graph that the tested value was computed from."""
        for number in one.near:
            at = int(np.searchsorted(self._sorted, number))
            if at < len(self._sorted) and self._sorted[at] == number:
                return int(self._rows[at])
        return -1

    def after(self, one: BranchTest) -> int:
        """The first node of this graph made after the test."""
        at = int(np.searchsorted(self._sorted, one.at))
        return int(self._rows[at]) if at < len(self._rows) else -1


def _forwards(trace: TraceResult) -> list[tuple[int, int]]:
    """(first number, first number after it) of every outermost forward."""
    changes = list(zip(trace.owner_at, trace.owner, strict=True))
    begins = [b[0] for a, b in pairwise(changes) if a[1] == OUTSIDE and b[1] != OUTSIDE]
    ends = [b[0] for a, b in pairwise(changes) if a[1] != OUTSIDE and b[1] == OUTSIDE]
    ends += [trace.last] * (len(begins) - len(ends))
    return list(zip(begins, ends, strict=True))


def _module_row(path: str | None, row_of: Mapping[str, int]) -> int:
    """The module that made the test, or the nearest one around it that the record has."""
    while path:
        if path in row_of:
            return row_of[path]
        path = path.rpartition(".")[0]
    return -1 if path is None else row_of.get("", -1)


def values_text(one: BranchTest) -> str:
    """``0.730 > 0.750``, in the order of the source; ``""`` if the numbers are not known."""
    left, right = one.numbers
    if not one.symbol:
        return "" if left is None else number_text(left)
    if left is None or right is None:
        return ""
    symbol = one.symbol
    written = comparison(one.condition)
    if written is not None and symbol_of(written) != symbol:
        left, right, symbol = right, left, _MIRRORED[symbol]
    digits = 3
    while digits < 9 and left != right and number_text(left, digits) == number_text(right, digits):
        digits += 1
    return f"{number_text(left, digits)} {symbol} {number_text(right, digits)}"


def number_text(value: Number, digits: int = 3) -> str:
    """``0.730``, ``7.48e−5``, ``12``: significant digits of a float, with a true minus."""
    if isinstance(value, (bool, int)):
        return str(value).replace("-", "−")
    if not value or 1e-3 <= abs(value) < 10**digits:
        text = f"{value:#.{digits}g}".rstrip(".")
    else:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        text = f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return text.replace("-", "−")


def _notes(trace: TraceResult) -> tuple[str, ...]:
    return (*map(_repeated, trace.branches.repeated), *_fault(trace))


def _repeated(one: Repeated) -> str:
    name = one.place[0].rpartition("/")[2]
    line = source_line(*one.place)
    where = line.label if line.cell is not None else f"{name}:{line.line}"
    return (
        f"`{one.condition or 'a test'}` ({where}) was {one.taken} {plural(one.times, 'time')} in "
        f"one forward; {one.shown} of these are shown."
    )


def _fault(trace: TraceResult) -> tuple[str, ...]:
    if not trace.branches.fault:
        return ()
    return (
        "Watching the tests of tensor values failed partway, so later tests are missing "
        f"({trace.branches.fault}).",
    )


def branch_lines(record: GraphRecord) -> list[str]:
    """One line per test: ``tested: sure > limit (0.730 > 0.750) is False, cell [4], line 35``."""
    runs = groupby(record.branches, key=lambda one: (one.source, one.condition, one.taken))
    lines = [_line(record, list(same)) for _, same in runs]
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"tested: … {more} more"] if more > 0 else lines


def _line(record: GraphRecord, run: Sequence[Branch]) -> str:
    """Text line for the first of consecutive tests of one source line with the same outcome."""
    one = run[0]
    source = record.sources[one.source] if one.source >= 0 else None
    condition = one.condition or (source.text if source else "") or "a tensor"
    shown = "" if not one.values or one.values == condition else f" ({one.values})"
    where = f", {source.label}" if source else ""
    times = f" × {len(run)}" if len(run) > 1 else ""
    return f"tested: {condition}{shown} is {one.taken}{times}{where}"


# The `if` that encloses a line of code, if its source can still be read.


def condition_of(line: SourceLine) -> str:
    """```if sure > self.threshold:```, ``the else of`` it, or ``""`` where there is none.

    Reads the file or cell as it is now, and only if the line still reads as it was recorded.
    """
    text = linecache.getlines(line.filename)
    if not line.text or not 0 < line.line <= len(text):
        return ""
    if text[line.line - 1].strip() != line.text:
        return ""
    try:
        tree = ast.parse("".join(text))
    except (SyntaxError, ValueError):  # a cell with magics
        return ""
    found = ""
    inside: list[ast.AST] = [tree]
    while inside:
        node = inside.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            found = ""  # an `if` around the function did not choose the line
        if isinstance(node, ast.If):
            condition = f"`if {ast.unparse(node.test)}:`"
            if _covers(node.body, line.line):
                found = condition
            elif _covers(node.orelse, line.line):
                found = f"the else of {condition}"
        inside = [child for child in ast.iter_child_nodes(node) if _covers([child], line.line)]
    return found


def _covers(nodes: list[ast.stmt] | list[ast.AST], line: int) -> bool:
    return any(
        getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)
        for node in nodes
    )
