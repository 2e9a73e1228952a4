"""Why two captures differ, in a few plain words, the cause first.

Everything said is read off the two records: a precision from dtypes and casts, a branch from lines
of one function that made operations in one capture only, a loop from a line that made more calls, a
batch from first dimensions. Where none of these is found only the consequences are listed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.graph.branch import condition_of
from workbench.graph.consequences import bytes_sentence, consequences, names_of, operations
from workbench.graph.gradient_change import BEYOND, beyond, shared_gradients
from workbench.graph.names import is_of_torch
from workbench.graph.wording import plural, short
from workbench.records import DIFF_STATES, NODE_KINDS

if TYPE_CHECKING:
    from workbench.records import GraphDiff

SAME, REMOVED, ADDED, CHANGED = range(len(DIFF_STATES))
_COMPILED = NODE_KINDS.index("compiled")
_FEW_SHARED = 0.2
"""Two models share at most this part of the larger one's operations."""

_Cause = tuple[str, int]
"""A sentence, and the index of its source line or -1."""

_Place = tuple[int, str, str]
"""(module, function, file)."""


def explain(
    diff: GraphDiff, frozen_a: AbstractSet[str], frozen_b: AbstractSet[str], asked: str = ""
) -> _Cause:
    """What changed from A to B, and the line that the cause lies in (-1 where none does).

    Args:
        diff: everything but the sentence.
        frozen_a: names of the parameters that A's model had frozen, where that is known.
        frozen_b: likewise.
        asked: a sentence about the first test that came out differently (`asked_otherwise`).
    """
    is_operation = operations(diff)
    if not (diff.node_state != SAME).any() and not (diff.edge_state != SAME).any():
        count = plural(int(is_operation.sum()), "node")
        same = f"A and B are the same graph: {count}, equal shapes, dtypes and saved bytes"
        return f"{same}{_moved(diff)}.", -1
    rules: tuple[Callable[[GraphDiff], _Cause | None], ...] = (
        _other_model,
        _compiled,
        lambda diff: _frozen(diff, frozen_a, frozen_b),
        _precision,
        _branch,
        _loop,
        _batch,
    )
    cause, source = next((found for rule in rules if (found := rule(diff))), ("", -1))
    return " ".join(
        part for part in (cause, asked, consequences(diff), bytes_sentence(diff)) if part
    ), source


def _moved(diff: GraphDiff) -> str:
    """What is to be said of the gradients of two equal graphs."""
    moved = beyond(shared_gradients(diff)) if diff.gradients else []
    if not moved:
        return ""
    return f"; {plural(len(moved), 'gradient')} grew or shrank by more than × {BEYOND:g}"


def _other_model(diff: GraphDiff) -> _Cause | None:
    rows = operations(diff)
    shared = int(np.count_nonzero(rows & (diff.node_state != REMOVED) & (diff.node_state != ADDED)))
    larger = max(diff.a.num_operations, diff.b.num_operations)
    if diff.a.model == diff.b.model or shared > _FEW_SHARED * larger:
        return None
    return (
        f"A and B are different models ({short(diff.a.model, 40)} and {short(diff.b.model, 40)}): "
        f"of {plural(diff.a.num_operations, 'node')} in A and {diff.b.num_operations:,} in B, "
        f"{shared:,} correspond."
    ), -1


def _frozen(
    diff: GraphDiff, frozen_a: AbstractSet[str], frozen_b: AbstractSet[str]
) -> _Cause | None:
    """Parameters that one capture trained and the other had frozen."""
    for name, state, frozen in (("B", REMOVED, frozen_b), ("A", ADDED, frozen_a)):
        rows = np.flatnonzero((diff.node_kind == 1) & (diff.node_state == state)).tolist()
        rows = [row for row in rows if diff.strings[diff.node_name[row]] in frozen]
        if rows:
            first = short(diff.strings[diff.node_name[rows[0]]], 60)
            which = f" ({first})" if len(rows) == 1 else f" ({first} and others)"
            verb = "is" if len(rows) == 1 else "are"
            return f"{plural(len(rows), 'parameter')}{which} {verb} frozen in {name} only.", -1
    return None


def _compiled(diff: GraphDiff) -> _Cause | None:
    rows = diff.node_kind == _COMPILED
    only_a = np.flatnonzero(rows & (diff.node_state == REMOVED))
    only_b = np.flatnonzero(rows & (diff.node_state == ADDED))
    if bool(len(only_a)) == bool(len(only_b)):
        return None
    name, other, found = ("A", "B", only_a) if len(only_a) else ("B", "A", only_b)
    names = names_of(diff, list(dict.fromkeys(diff.node_module[found].tolist())))
    return f"{name} ran {names} as compiled code, {other} operation by operation.", -1


def _precision(diff: GraphDiff) -> _Cause | None:
    rows = np.flatnonzero(operations(diff) & (diff.node_state == CHANGED))
    pairs = zip(diff.node_dtype[rows].tolist(), diff.node_dtype_b[rows].tolist(), strict=True)
    counts = Counter(pair for pair in pairs if pair[0] != pair[1])
    if not counts:
        return None
    (before, after), count = counts.most_common(1)[0]
    nodes = plural(count, "node")
    before, after = diff.strings[before], diff.strings[after]
    return f"B computed in {after} what A computed in {before}, in {nodes}.", -1


def _branch(diff: GraphDiff) -> _Cause | None:
    """The first line whose operations are in one capture only, though both ran its module."""
    of_a = _lines(diff, diff.node_source, diff.node_a)
    of_b = _lines(diff, diff.node_source_b, diff.node_b)
    ran_a, ran_b = (_modules_that_ran(diff, rows) for rows in (diff.node_a, diff.node_b))
    found: list[tuple[int, _Place, list[int], list[int]]] = []
    for place in {*of_a, *of_b}:
        if place[0] not in ran_a & ran_b:
            continue
        lines_a, lines_b = of_a.get(place, {}), of_b.get(place, {})
        only_a = [lines_a[line] for line in lines_a if line not in lines_b]
        only_b = [lines_b[line] for line in lines_b if line not in lines_a]
        if only_a or only_b:
            first = min((*only_a, *only_b))[0]
            found.append((first, place, [s for _, s in only_a], [s for _, s in only_b]))
    return _told_branch(diff, *min(found)[1:]) if found else None


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
    while diff.modules[module].parent >= 0 and is_of_torch(diff.modules[module].cls):
        module = diff.modules[module].parent
    return module


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
    diff: GraphDiff, sources: npt.NDArray[np.int32], rows: npt.NDArray[np.int32]
) -> dict[_Place, dict[str | int, tuple[int, int]]]:
    """Function -> its lines that made operations, each with its first row and its index."""
    found: dict[_Place, dict[str | int, tuple[int, int]]] = defaultdict(dict)
    for row in np.flatnonzero(operations(diff) & (rows >= 0) & (sources >= 0)).tolist():
        source = int(sources[row])
        line = diff.sources[source]
        place = (int(diff.node_module[row]), line.function, line.filename)
        found[place].setdefault(line.text or line.line, (row, source))
    return found


def _quoted(diff: GraphDiff, sources: list[int]) -> str:
    line = diff.sources[sources[0]]
    text = f"`{short(line.text, 70)}` ({short(line.label, 40)})" if line.text else line.label
    rest = len(sources) - 1
    return f"{text} and {plural(rest, 'more line')}" if rest else text


def _loop(diff: GraphDiff) -> _Cause | None:
    """The line that made the most calls more, or fewer, in B; of its calls those it made fewest of.

    The body of a loop may make several calls of one operation a round, so the rarest tells rounds.
    """
    count_a = _call_counts(diff, diff.node_source, diff.node_a)
    count_b = _call_counts(diff, diff.node_source_b, diff.node_b)
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
    diff: GraphDiff, sources: npt.NDArray[np.int32], rows: npt.NDArray[np.int32]
) -> Counter[tuple[int, int, int]]:
    """(module, line, operation) -> number of Python calls; with a line, all modules are -1."""
    seen: dict[tuple[int, int, int, tuple[int, int]], None] = {}
    for row in np.flatnonzero(operations(diff) & (rows >= 0)).tolist():
        call, source = int(diff.node_call[row]), int(sources[row])
        module = int(diff.node_module[row])
        key = (module if source < 0 else -1, source, int(diff.node_op[row]))
        seen[*key, (module, call if call >= 0 else -2 - row)] = None
    return Counter((module, source, op) for module, source, op, _ in seen)


def _batch(diff: GraphDiff) -> _Cause | None:
    rows = np.flatnonzero(operations(diff) & (diff.node_state == CHANGED))
    firsts: Counter[tuple[str, str]] = Counter()
    for row in rows.tolist():
        before, after = diff.node_shape[row], diff.node_shape_b[row]
        (a, *rest_a), (b, *rest_b) = (diff.strings[i].split("×") for i in (before, after))
        if a != b and rest_a == rest_b:
            firsts[a, b] += 1
        elif before != after:
            return None
    if len(firsts) != 1:
        return None
    (a, b), count = firsts.most_common(1)[0]
    shapes = "the one changed shape" if count == 1 else f"all {count:,} changed shapes"
    return f"The first dimension went from {a} to {b} in {shapes}.", -1
