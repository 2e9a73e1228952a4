"""Why two captures differ, in a few plain words, the cause first.

Everything said is read off the two records: a precision from dtypes and casts, a branch from lines
of one function that made operations in one capture only, a loop from a line that made more calls, a
batch from first dimensions. Where none of these is found only the consequences are listed.

A test of a tensor that came out differently leads. A line of the script that calls the model and
computes the loss is a cause only where the model gives none, and no line is one where one of the
captures knows no lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.cause_lines import Cause, longer_loop, other_line
from workbench.graph.consequences import bytes_sentence, consequences, names_of, operations
from workbench.graph.gradient_change import BEYOND, beyond, shared_gradients
from workbench.graph.wording import plural, short
from workbench.records import DIFF_STATES, NODE_KINDS

if TYPE_CHECKING:
    from workbench.records import GraphDiff

SAME, REMOVED, ADDED, CHANGED = range(len(DIFF_STATES))
_COMPILED = NODE_KINDS.index("compiled")
_FEW_SHARED = 0.2
"""Two models share at most this part of the larger one's operations."""


@dataclass(frozen=True)
class Known:
    """What is known of the two captures besides their diff."""

    frozen_a: AbstractSet[str]
    """Names of the parameters that A's model had frozen, where that is known."""
    frozen_b: AbstractSet[str]
    asked: Cause = ("", -1)
    """About the first test that came out differently (`asked_otherwise`)."""
    names_less: str = ""
    """A sentence about the capture that knows no calls and lines, where only one does not."""


def explain(diff: GraphDiff, known: Known) -> Cause:
    """What changed from A to B, and the line that the cause lies in (-1 where none does).

    Args:
        diff: everything but the sentence.
        known: what it does not hold.
    """
    is_operation = operations(diff)
    if not (diff.node_state != SAME).any() and not (diff.edge_state != SAME).any():
        count = plural(int(is_operation.sum()), "backward node")
        same = f"A and B are the same graph: {count}, equal shapes, dtypes and saved bytes"
        return _joined(f"{same}{_moved(diff)}.", known.names_less), -1
    asked, line = known.asked
    cause, source = next((found for rule in _rules(known) if (found := rule(diff))), ("", -1))
    said = (asked, cause, consequences(diff), bytes_sentence(diff), known.names_less)
    return _joined(*said), source if line < 0 else line


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _rules(known: Known) -> list[Callable[[GraphDiff], Cause | None]]:
    """What may be the cause, the likeliest first."""
    rules: list[Callable[[GraphDiff], Cause | None]] = [
        _other_model,
        _compiled,
        lambda diff: _frozen(diff, known.frozen_a, known.frozen_b),
        _precision,
    ]
    if known.names_less:
        return [*rules, _batch]
    rules += [partial(other_line, of_script=False), partial(longer_loop, of_script=False)]
    if known.asked[0]:
        return [*rules, _batch]
    return [
        *rules,
        partial(longer_loop, of_script=True),
        _batch,
        partial(other_line, of_script=True),
    ]


def _moved(diff: GraphDiff) -> str:
    """What is to be said of the gradients of two equal graphs."""
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
