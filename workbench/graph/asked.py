"""The first test of a tensor that came out one way in one capture and another in the other.

A branch is found again by its module, its function and how it is written, not by its line: a cell
that was run once more has other lines. Of a test that was made many times, the first time it came
out differently is told.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from workbench.graph.wording import short

if TYPE_CHECKING:
    from workbench.records import Branch, GraphRecord, SourceLine

_Key = tuple[str, str, str]
"""(module path, function, the test as it is written)."""


def asked_otherwise(a: GraphRecord, b: GraphRecord) -> tuple[str, SourceLine | None]:
    """One sentence about the first test with another outcome in ``b``, and its line in ``a``.

    Empty and None where every test that both made came out the same.
    """
    of_b: defaultdict[_Key, list[Branch]] = defaultdict(list)
    for branch in b.branches:
        of_b[_key(b, branch)].append(branch)
    times: defaultdict[_Key, int] = defaultdict(int)
    for branch in a.branches:
        key = _key(a, branch)
        others, time = of_b[key], times[key]
        times[key] += 1
        if key[2] and time < len(others) and others[time].taken != branch.taken:
            line = _line(a, branch)
            return _told(key[2], line, time + 1, branch, others[time]), line
    return "", None


def _key(record: GraphRecord, branch: Branch) -> _Key:
    path = record.modules[branch.module].path if branch.module >= 0 else ""
    line = _line(record, branch)
    text = branch.condition or (line.text if line is not None else "")
    return path, line.function if line is not None else "", text


def _line(record: GraphRecord, branch: Branch) -> SourceLine | None:
    return record.sources[branch.source] if branch.source >= 0 else None


def _told(test: str, line: SourceLine | None, time: int, a: Branch, b: Branch) -> str:
    where = f" ({short(line.label, 40)})" if line is not None else ""
    at = f" the {_ordinal(time)} time" if time > 1 else ""
    return f"`{short(test, 70)}`{where} was {_outcome(a)} in A and {_outcome(b)} in B{at}."


def _ordinal(number: int) -> str:
    last = number % 100
    ending = "th" if 10 <= last <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(last % 10, "th")
    return f"{number:,}{ending}"


def _outcome(branch: Branch) -> str:
    known = branch.values and branch.values != branch.condition
    return f"{branch.taken} ({short(branch.values, 40)})" if known else str(branch.taken)
