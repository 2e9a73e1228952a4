"""Explanation of why two captures differ, in a few plain words, the cause first.

Everything reported is read from the two records: a precision from dtypes and casts, a branch from
lines of one function that made operations in one capture only, a loop from a line that made more
calls, a batch from first dimensions. If none of these is found, only the consequences are listed.

A test of a tensor with different outcomes comes first. A line of the script that calls the model
and computes the loss is a cause only if the model gives none, and no line is a cause if one of the
captures has no lines.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.graph.capture.branch_columns import condition_of
from workbench.graph.core.model_names import is_of_torch
from workbench.graph.core.number_format import plural, short
from workbench.graph.diff.summary import bytes_sentence, consequences, names_of, operations
from workbench.records import DIFF_STATES, NODE_KINDS

if TYPE_CHECKING:
    from workbench.records import Branch, GraphDiff, GraphRecord, SourceLine

SAME, REMOVED, ADDED, CHANGED = range(len(DIFF_STATES))
_COMPILED = NODE_KINDS.index("compiled")
_FEW_SHARED = 0.2
"""Two different models share at most this fraction of the larger one's operations."""


# The first test of a tensor that had one outcome in one capture and another in the other.
#
# A branch is recognised by its module, its function and its source text, not by its line: a cell
# that was run once more has other lines. Of a test that was made many times, the first different
# outcome is reported.

_Key = tuple[str, str, str]
"""(module path, function, the test as it is written)."""


def changed_test(a: GraphRecord, b: GraphRecord) -> tuple[str, SourceLine | None]:
    """One sentence about the first test with another outcome in ``b``, and its line in ``a``.

    Empty and None if every test that both made had the same outcome.
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
            return _test_outcomes(key[2], line, time + 1, branch, others[time]), line
    return "", None


def _key(record: GraphRecord, branch: Branch) -> _Key:
    path = record.modules[branch.module].path if branch.module >= 0 else ""
    line = _line(record, branch)
    text = branch.condition or (line.text if line is not None else "")
    return path, line.function if line is not None else "", text


def _line(record: GraphRecord, branch: Branch) -> SourceLine | None:
    return record.sources[branch.source] if branch.source >= 0 else None


def _test_outcomes(test: str, line: SourceLine | None, time: int, a: Branch, b: Branch) -> str:
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


# Causes found in lines of code: a line that ran in one capture only, a loop that ran longer.
#
# A line of the model explains what a line of the script around it cannot: the loss is written anew
# in each cell, and a model that exits early has fewer outputs to compute it from. So lines of the
# script are considered separately, and last. What torch's own modules ran counts as script too if
# no module of the user's is around them: no other line called them.


Cause = tuple[str, int]
"""A sentence, and the index of its source line or -1."""

_REPLACED = " → "
"""Separates the two classes of a module whose class is another one in B."""

_Place = tuple[int, str, str]
"""(module, function, file)."""


def other_line(diff: GraphDiff, *, of_script: bool) -> Cause | None:
    """The first line whose operations are in one capture only, though both ran its module.

    Args:
        diff: the diff, complete except for its sentence.
        of_script: whether to consider the lines of the script, or those of the model. For a line of
            the script at least one operation must have changed: the same loss may be written
            elsewhere.
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
    return _branch_sentence(diff, *min(found)[1:]) if found else None


def _has_changed(
    diff: GraphDiff, only_a: list[tuple[int, int]], only_b: list[tuple[int, int]]
) -> bool:
    """Whether these lines made an operation that differs; True if no operation differs.

    What a module of another class made is already explained by its class.
    """
    changed = operations(diff) & (diff.node_state != SAME)
    replaced = np.array([_REPLACED in module.cls for module in diff.modules])
    explained = replaced[diff.node_module]
    of_a = np.isin(diff.node_source, [source for _, source in only_a])
    of_b = np.isin(diff.node_source_b, [source for _, source in only_b])
    return not changed.any() or bool((changed & ~explained & (of_a | of_b)).any())


def _branch_sentence(
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
    """The nearest module, from ``module`` outwards, whose code has the lines of its calls."""
    while diff.modules[module].parent >= 0 and _is_of_torch(diff, module):
        module = diff.modules[module].parent
    return module


def _is_of_torch(diff: GraphDiff, module: int) -> bool:
    return all(map(is_of_torch, diff.modules[module].cls.split(_REPLACED)))


def _modules_that_ran(diff: GraphDiff, rows: npt.NDArray[np.int32]) -> set[int]:
    """Modules with an operation, directly or in a submodule, in the capture of ``rows``."""
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

    The step may be in another cell, so the file of a script's functions is left out.
    """
    found: dict[_Place, dict[str | int, tuple[int, int]]] = defaultdict(dict)
    selected = _operations_of(diff, rows, of_script=of_script) & (sources >= 0)
    for row in np.flatnonzero(selected).tolist():
        source = int(sources[row])
        line = diff.sources[source]
        file = "" if of_script else line.filename
        place = (int(diff.node_module[row]), line.function, file)
        found[place].setdefault(line.text or line.line, (row, source))
    return found


def _operations_of(
    diff: GraphDiff, rows: npt.NDArray[np.int32], *, of_script: bool
) -> npt.NDArray[np.bool_]:
    """Mask of the operations of the capture of ``rows`` whose line is in the script, or is not."""
    writers = [_written_in(diff, module) for module in range(len(diff.modules))]
    is_script = np.array([not diff.modules[m].cls or _is_of_torch(diff, m) for m in writers])
    return operations(diff) & (rows >= 0) & (is_script[diff.node_module] == of_script)


def _quoted(diff: GraphDiff, sources: list[int]) -> str:
    line = diff.sources[sources[0]]
    text = f"`{short(line.text, 70)}` ({short(line.label, 40)})" if line.text else line.label
    rest = len(sources) - 1
    return f"{text} and {plural(rest, 'more line')}" if rest else text


def longer_loop(diff: GraphDiff, *, of_script: bool) -> Cause | None:
    """The line whose number of calls differs most in B, counted by its rarest operation.

    The body of a loop may call one operation several times per iteration, so the rarest operation
    shows the number of iterations.

    Args:
        diff: the diff, complete except for its sentence.
        of_script: whether to consider the lines of the script, or those of the model.
    """
    count_a = _call_counts(
        diff, diff.node_source, _operations_of(diff, diff.node_a, of_script=of_script)
    )
    count_b = _call_counts(
        diff, diff.node_source_b, _operations_of(diff, diff.node_b, of_script=of_script)
    )
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
    diff: GraphDiff, sources: npt.NDArray[np.int32], selected: npt.NDArray[np.bool_]
) -> Counter[tuple[int, int, int]]:
    """(module, line, operation) -> number of Python calls; if a line is known, the module is -1."""
    seen: dict[tuple[int, int, int, tuple[int, int]], None] = {}
    for row in np.flatnonzero(selected).tolist():
        call, source = int(diff.node_call[row]), int(sources[row])
        module = int(diff.node_module[row])
        key = (module if source < 0 else -1, source, int(diff.node_op[row]))
        seen[*key, (module, call if call >= 0 else -2 - row)] = None
    return Counter((module, source, op) for module, source, op, _ in seen)


# Operations whose gradient became much larger or smaller from one capture to the other.

BEYOND = 3.0
"""A gradient norm that grew or shrank by more than this factor is reported."""


@dataclass(frozen=True)
class GradientChange:
    """L2 norms of the gradient of one operation's output in A and B."""

    row: int
    norm_a: float
    norm_b: float

    @property
    def log_factor(self) -> float:
        """``ln(norm_b / norm_a)``: infinite where one of them is 0 or not finite."""
        if not math.isfinite(self.norm_a) or self.norm_b == 0:
            return -math.inf
        if not math.isfinite(self.norm_b) or self.norm_a == 0:
            return math.inf
        return math.log(self.norm_b / self.norm_a)


def shared_gradients(diff: GraphDiff) -> list[GradientChange]:
    """Gradients that both backward passes measured: one operation per Python call, its last.

    They are in forward order. Equal infinities are no change and are left out.
    """
    if not diff.gradients:
        return []
    is_operation = (diff.node_kind == 0) | (diff.node_kind == 3)
    rows = np.flatnonzero(is_operation & (diff.node_a >= 0) & (diff.node_b >= 0))
    last_of_call: dict[tuple[int, int], GradientChange] = {}
    for row in rows.tolist():
        a, b = float(diff.node_gradient_norm[row]), float(diff.node_gradient_norm_b[row])
        bad_a = int(diff.node_gradient_non_finite[row]) > 0
        bad_b = int(diff.node_gradient_non_finite_b[row]) > 0
        is_known = (bad_a or 0 <= a < math.inf) and (bad_b or 0 <= b < math.inf)
        if not is_known or (bad_a and bad_b):
            continue
        call = int(diff.node_call[row])
        key = (int(diff.node_module[row]), call if call >= 0 else -2 - row)
        last_of_call[key] = GradientChange(row, math.inf if bad_a else a, math.inf if bad_b else b)
    return sorted(last_of_call.values(), key=lambda change: change.row)


def beyond(changes: list[GradientChange], factor: float = BEYOND) -> list[GradientChange]:
    """The changes by more than ``factor`` in either direction, the largest first."""
    found = [
        change
        for change in changes
        if change.norm_a != change.norm_b and abs(change.log_factor) > math.log(factor)
    ]
    return sorted(found, key=lambda change: -abs(change.log_factor))


@dataclass(frozen=True)
class Known:
    """What is known about the two captures besides their diff."""

    frozen_a: AbstractSet[str]
    """Names of the frozen parameters of A's model, if they are known."""
    frozen_b: AbstractSet[str]
    test: Cause = ("", -1)
    """Sentence and line of the first test with different outcomes (`changed_test`)."""
    names_less: str = ""
    """A sentence about the capture that has no calls and lines, if only one has none."""


def explain(diff: GraphDiff, known: Known) -> Cause:
    """Explain what changed from A to B; also returns the line of the cause, -1 if none.

    Args:
        diff: the diff, complete except for its sentence.
        known: what the diff does not contain.
    """
    is_operation = operations(diff)
    if not (diff.node_state != SAME).any() and not (diff.edge_state != SAME).any():
        count = plural(int(is_operation.sum()), "backward node")
        same = f"A and B are the same graph: {count}, equal shapes, dtypes and saved bytes"
        return _joined(f"{same}{_moved(diff)}.", known.names_less), -1
    test, line = known.test
    cause, source = next((found for rule in _rules(known) if (found := rule(diff))), ("", -1))
    said = (test, cause, consequences(diff), bytes_sentence(diff), known.names_less)
    return _joined(*said), source if line < 0 else line


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _rules(known: Known) -> list[Callable[[GraphDiff], Cause | None]]:
    """Rules that look for a cause, the likeliest first."""
    rules: list[Callable[[GraphDiff], Cause | None]] = [
        _other_model,
        _compiled,
        lambda diff: _frozen(diff, known.frozen_a, known.frozen_b),
        _precision,
    ]
    if known.names_less:
        return [*rules, _batch]
    rules += [partial(other_line, of_script=False), partial(longer_loop, of_script=False)]
    if known.test[0]:
        return [*rules, _batch]
    return [
        *rules,
        partial(longer_loop, of_script=True),
        _batch,
        partial(other_line, of_script=True),
    ]


def _moved(diff: GraphDiff) -> str:
    """Clause about the gradients of two equal graphs."""
    moved = beyond(shared_gradients(diff)) if diff.gradients else []
    if not moved:
        return ""
    return f"; {plural(len(moved), 'gradient')} grew or shrank by more than × {BEYOND:g}"


def _other_model(diff: GraphDiff) -> Cause | None:
    rows = operations(diff)
    shared = int(np.count_nonzero(rows & (diff.node_state != REMOVED) & (diff.node_state != ADDED)))
    larger = max(diff.a.num_operations, diff.b.num_operations)
    if diff.a.model == diff.b.model or shared > _FEW_SHARED * larger:
        return None
    return (
        f"A and B are different models ({short(diff.a.model, 40)} and {short(diff.b.model, 40)}): "
        f"of {plural(diff.a.num_operations, 'backward node')} in A and {diff.b.num_operations:,} "
        f"in B, {shared:,} correspond."
    ), -1


def _frozen(
    diff: GraphDiff, frozen_a: AbstractSet[str], frozen_b: AbstractSet[str]
) -> Cause | None:
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


def _compiled(diff: GraphDiff) -> Cause | None:
    rows = diff.node_kind == _COMPILED
    only_a = np.flatnonzero(rows & (diff.node_state == REMOVED))
    only_b = np.flatnonzero(rows & (diff.node_state == ADDED))
    if bool(len(only_a)) == bool(len(only_b)):
        return None
    name, other, found = ("A", "B", only_a) if len(only_a) else ("B", "A", only_b)
    names = names_of(diff, list(dict.fromkeys(diff.node_module[found].tolist())))
    return f"{name} ran {names} as compiled code, {other} operation by operation.", -1


def _precision(diff: GraphDiff) -> Cause | None:
    rows = np.flatnonzero(operations(diff) & (diff.node_state == CHANGED))
    pairs = zip(diff.node_dtype[rows].tolist(), diff.node_dtype_b[rows].tolist(), strict=True)
    counts = Counter(pair for pair in pairs if pair[0] != pair[1])
    if not counts:
        return None
    (before, after), count = counts.most_common(1)[0]
    nodes = plural(count, "backward node")
    before, after = diff.strings[before], diff.strings[after]
    return f"B computed in {after} what A computed in {before}, in {nodes}.", -1


def _batch(diff: GraphDiff) -> Cause | None:
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
