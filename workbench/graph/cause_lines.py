"""Causes that lines of code tell: a line that ran in one capture only, a loop that ran longer.

A line of the model explains what one of the script around it cannot: the loss is written anew in
each cell, and a model that leaves early has fewer outputs to compute it from. So lines of the
script are a question of their own, to be asked last. What torch's own modules ran is of the script
too where no module of the user's is around them: no other line called them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.graph.branch import condition_of
from workbench.graph.consequences import names_of, operations
from workbench.graph.names import is_of_torch
from workbench.graph.wording import plural, short
from workbench.records import DIFF_STATES

if TYPE_CHECKING:
    from workbench.records import GraphDiff

SAME = DIFF_STATES.index("same")

Cause = tuple[str, int]
"""A sentence, and the index of its source line or -1."""

_REPLACED = " → "
"""Between both classes of a module that is of another one in B."""

_Place = tuple[int, str, str]
"""(module, function, file)."""


def other_line(diff: GraphDiff, *, of_script: bool) -> Cause | None:
    """The first line whose operations are in one capture only, though both ran its module.

    Args:
        diff: everything but the sentence.
        of_script: whether of the lines of the script, or of those of the model. Of a line of the
            script at least one operation must have changed: the same loss may be written elsewhere.
    """
    of_a = _lines(diff, diff.node_source, diff.node_a, of_script=of_script)
    of_b = _lines(diff, diff.node_source_b, diff.node_b, of_script=of_script)
    ran_a, ran_b = (_modules_that_ran(diff, rows) for rows in (diff.node_a, diff.node_b))
    found: list[tuple[int, _Place, list[int], list[int]]] = []
    for place in {*of_a, *of_b}:
        if place[0] not in ran_a & ran_b:
            continue
        lines_a, lines_b = of_a.get(place, {}), of_b.get(place, {})
        only_a = [lines_a[line] for line in lines_a if line not in lines_b]
        only_b = [lines_b[line] for line in lines_b if line not in lines_a]
        if of_script and not _has_changed(diff, only_a, only_b):
            continue
        if only_a or only_b:
            first = min((*only_a, *only_b))[0]
            found.append((first, place, [s for _, s in only_a], [s for _, s in only_b]))
    return _told_branch(diff, *min(found)[1:]) if found else None


def _has_changed(
    diff: GraphDiff, only_a: list[tuple[int, int]], only_b: list[tuple[int, int]]
) -> bool:
    """Whether these lines made what is not alike in both; True where all operations are.

    What a module of another class made is explained by that.
    """
    changed = operations(diff) & (diff.node_state != SAME)
    replaced = np.array([_REPLACED in module.cls for module in diff.modules])
    explained = replaced[diff.node_module]
    of_a = np.isin(diff.node_source, [source for _, source in only_a])
    of_b = np.isin(diff.node_source_b, [source for _, source in only_b])
    return not changed.any() or bool((changed & ~explained & (of_a | of_b)).any())


def _told_branch(
    diff: GraphDiff, place: _Place, only_a: list[int], only_b: list[int]
) -> tuple[str, int]:
    where = (
        f"In {place[1]} of {names_of(diff, [_written_in(diff, place[0])])}, " if place[1] else ""
    )
    if only_a and only_b:
        said = f"B ran {_quoted(diff, only_b)} where A ran {_quoted(diff, only_a)}."
        return where + said, only_b[0]
    name, other, lines = ("B", "A", only_b) if only_b else ("A", "B", only_a)
    condition = condition_of(diff.sources[lines[0]])
    under = f", under {short(condition, 90)}" if condition else ""
    none = f"{other}'s graph has nothing of {'that line' if len(lines) == 1 else 'those lines'}."
    return f"{where}{name} ran {_quoted(diff, lines)}{under}; {none}", lines[0]


def _written_in(diff: GraphDiff, module: int) -> int:
    """The module whose code holds the lines of ``module``'s calls, the next one around it."""
    while diff.modules[module].parent >= 0 and _is_of_torch(diff, module):
        module = diff.modules[module].parent
    return module


def _is_of_torch(diff: GraphDiff, module: int) -> bool:
    return all(map(is_of_torch, diff.modules[module].cls.split(_REPLACED)))


def _modules_that_ran(diff: GraphDiff, rows: npt.NDArray[np.int32]) -> set[int]:
    """Modules with an operation of theirs, or of what they contain, in the capture of ``rows``."""
    found: set[int] = set()
    for index in np.unique(diff.node_module[operations(diff) & (rows >= 0)]).tolist():
        module = index
        while module >= 0 and module not in found:
            found.add(module)
            module = diff.modules[module].parent
    return found


def _lines(
    diff: GraphDiff,
    sources: npt.NDArray[np.int32],
    rows: npt.NDArray[np.int32],
    *,
    of_script: bool,
) -> dict[_Place, dict[str | int, tuple[int, int]]]:
    """Function -> its lines that made operations, each with its first row and its index.

    The step may stand in another cell, so of a script's functions the file is left out.
    """
    found: dict[_Place, dict[str | int, tuple[int, int]]] = defaultdict(dict)
    told = _told(diff, rows, of_script=of_script) & (sources >= 0)
    for row in np.flatnonzero(told).tolist():
        source = int(sources[row])
        line = diff.sources[source]
        file = "" if of_script else line.filename
        place = (int(diff.node_module[row]), line.function, file)
        found[place].setdefault(line.text or line.line, (row, source))
    return found


def _told(
    diff: GraphDiff, rows: npt.NDArray[np.int32], *, of_script: bool
) -> npt.NDArray[np.bool_]:
    """Which rows are operations of the capture of ``rows`` whose line is of the script, or not."""
    writers = [_written_in(diff, module) for module in range(len(diff.modules))]
    is_script = np.array([not diff.modules[m].cls or _is_of_torch(diff, m) for m in writers])
    return operations(diff) & (rows >= 0) & (is_script[diff.node_module] == of_script)


def _quoted(diff: GraphDiff, sources: list[int]) -> str:
    line = diff.sources[sources[0]]
    text = f"`{short(line.text, 70)}` ({short(line.label, 40)})" if line.text else line.label
    rest = len(sources) - 1
    return f"{text} and {plural(rest, 'more line')}" if rest else text


def longer_loop(diff: GraphDiff, *, of_script: bool) -> Cause | None:
    """The line that made the most calls more, or fewer, in B; of its calls those it made fewest of.

    The body of a loop may make several calls of one operation a round, so the rarest tells rounds.

    Args:
        diff: everything but the sentence.
        of_script: whether of the lines of the script, or of those of the model.
    """
    count_a = _call_counts(diff, diff.node_source, _told(diff, diff.node_a, of_script=of_script))
    count_b = _call_counts(diff, diff.node_source_b, _told(diff, diff.node_b, of_script=of_script))
    differ = [key for key in count_a if count_b[key] not in {0, count_a[key]}]
    if not differ:
        return None
    place = max(differ, key=lambda key: abs(count_b[key] - count_a[key]))[:2]
    key = min((key for key in differ if key[:2] == place), key=lambda key: count_a[key])
    if max(count_a[key], count_b[key]) < 2:
        return None
    module, source, op = key
    where = _quoted(diff, [source]) if source >= 0 else names_of(diff, [module])
    calls = f"{plural(count_a[key], 'call')} of {short(diff.strings[op], 40)} in A"
    return f"{where} made {calls} and {count_b[key]:,} in B.", source


def _call_counts(
    diff: GraphDiff, sources: npt.NDArray[np.int32], told: npt.NDArray[np.bool_]
) -> Counter[tuple[int, int, int]]:
    """(module, line, operation) -> number of Python calls; with a line, all modules are -1."""
    seen: dict[tuple[int, int, int, tuple[int, int]], None] = {}
    for row in np.flatnonzero(told).tolist():
        call, source = int(diff.node_call[row]), int(sources[row])
        module = int(diff.node_module[row])
        key = (module if source < 0 else -1, source, int(diff.node_op[row]))
        seen[*key, (module, call if call >= 0 else -2 - row)] = None
    return Counter((module, source, op) for module, source, op, _ in seen)
