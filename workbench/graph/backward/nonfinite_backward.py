"""Search for the node that made the first NaN or infinity of a backward pass.

A node is the cause when the gradient it received was finite and the gradient it passed on was not.
The first such node in the order in which the nodes ran is reported; the nodes after it only carry
the value along. Where several nodes pass gradients to the same node, those that can make such a
value were checked (see `workbench.graph.core.gradient_paths`); if none of them made it, their
finite gradients overflowed when they were added.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.backward.gradient_stats import MOST_ROWS
from workbench.graph.core.gradient_paths import passes_on
from workbench.graph.core.number_format import plural
from workbench.records import NODE_KINDS, STORAGE_KINDS, NonFinite

if TYPE_CHECKING:
    from workbench.graph.backward.gradient_stats import Statistics
    from workbench.graph.backward.gradient_watch import GradientWatch
    from workbench.records import GraphRecord

_HELD = (STORAGE_KINDS.index("activation"), STORAGE_KINDS.index("input"))


@dataclass(frozen=True)
class _Made:
    """``row`` passed a non-finite value to ``maker`` (-1: no other node did)."""

    row: int
    maker: int


def first_in_backward(record: GraphRecord, watch: GradientWatch) -> NonFinite | None:
    """The node that made the first non-finite gradient; None if all are finite.

    Args:
        record: the graph.
        watch: observer of its backward pass, as far as that has run.
    """
    order, found = watch.order(), watch.statistics()
    bad = {row for row, one in found.items() if one.non_finite}
    if not bad:
        return None
    if record.root in bad:
        text = "The gradient that backward began with was not finite at this loss already."
        return NonFinite(node=record.root, in_forward=False, samples=(), text=text)
    users: dict[int, set[int]] = defaultdict(set)
    for maker, user in zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True):
        if order[user] >= 0:
            users[maker].add(user)
    causes = [_cause(record, row, users[row], bad, watch) for row in bad]
    made = min(filter(None, causes), key=lambda one: order[one.row], default=None)
    if made is None:
        return None
    samples = _samples(record, made.maker, users, watch)
    text = _sentence(record, made, found[made.maker], samples)
    return NonFinite(node=made.row, in_forward=False, samples=samples, text=text)


def _cause(
    record: GraphRecord, maker: int, users: set[int], bad: set[int], watch: GradientWatch
) -> _Made | None:
    """The node that made the non-finite gradient of ``maker``; None if it was only passed on."""
    finite = users - bad
    if len(users) == 1:
        return _Made(min(finite), maker) if finite else None
    checked = watch.made()
    causes = [user for user in finite if not checked.get((maker, user), True)]
    if causes:
        return _Made(min(causes, key=lambda user: watch.order()[user]), maker)
    if users & bad:
        return None
    types = record.node_type
    able = [user for user in users if not passes_on(record.strings[types[user]])]
    if len(able) == 1 and (maker, able[0]) not in checked:  # no other node could
        return _Made(able[0], maker)
    return _Made(maker, maker)


def _samples(
    record: GraphRecord, maker: int, users: Mapping[int, set[int]], watch: GradientWatch
) -> tuple[int, ...]:
    """Rows of the batch that are not finite in the first such gradient with one row per sample."""
    order, found = watch.order(), watch.statistics()
    of_parameters = from_parameters_only(record)
    same = _passed_on(record, maker, users)
    later = [row for row in same - of_parameters if row in found and found[row].rows]
    first = min(later, key=lambda row: order[row], default=None)
    return () if first is None else found[first].rows[:MOST_ROWS]


def _passed_on(record: GraphRecord, start: int, users: Mapping[int, set[int]]) -> set[int]:
    """``start`` and the rows that its gradient reached through changes of shape alone."""
    found = {start}
    for row in range(start - 1, -1, -1):  # users come after makers
        following = users.get(row, ())
        if len(following) == 1:
            (user,) = following
            if user in found and passes_on(record.strings[record.node_type[user]]):
                found.add(row)
    return found


def from_parameters_only(record: GraphRecord) -> set[int]:
    """Parameters and nodes computed only from parameters: they have no rows of the batch."""
    found = set(np.flatnonzero(record.node_kind == NODE_KINDS.index("parameter")).tolist())
    held = np.isin(record.storage_kind[record.hold_storage], _HELD)
    with_values = set(record.hold_node[held].tolist())
    makers: dict[int, list[int]] = defaultdict(list)
    for maker, user in zip(record.edge_from.tolist(), record.edge_to.tolist(), strict=True):
        makers[user].append(maker)
    for row in sorted(makers):  # makers come before users
        if row not in with_values and all(maker in found for maker in makers[row]):
            found.add(row)
    return found


def _sentence(
    record: GraphRecord, made: _Made, gradient: Statistics, samples: Sequence[int]
) -> str:
    what = f"{_what(record, made, gradient)}{batch_rows_text(samples)}"
    place = place_of(record, made.row)
    if made.row == made.maker:
        return f"Finite gradients of the output of {place} were added up to {what}."
    return f"The backward of {place} turned a finite gradient into one with {what}."


def _what(record: GraphRecord, made: _Made, gradient: Statistics) -> str:
    if math.isnan(gradient.largest):
        return plural(gradient.non_finite, "NaN or infinite value")
    half = record.strings[record.node_dtype[made.maker]] == "float16"
    what = plural(gradient.non_finite, "infinite value")
    return f"{what} (float16 ends at 65,504)" if half else what


def place_of(record: GraphRecord, row: int) -> str:
    """``sqrt in norm (cell [2], line 11)``."""
    text = record.strings
    name = text[record.node_name[row]] or text[record.node_op[row]]
    module = record.modules[record.node_module[row]].path
    named = bool(text[record.node_name[row]]) or module in {"", "loss"}
    inside = "" if named else f" in {module}"
    source = int(record.node_source[row])
    line = f" ({record.sources[source].label})" if source >= 0 else ""
    return f"{name}{inside}{line}"


def batch_rows_text(samples: Sequence[int]) -> str:
    """``, in rows 3, 4 and 7 of the batch``; empty without samples."""
    if not samples:
        return ""
    if len(samples) == 1:
        return f", in row {samples[0]} of the batch"
    if len(samples) > 8:
        more = " or more" if len(samples) == MOST_ROWS else ""
        return f", in {len(samples)}{more} rows of the batch"
    named = ", ".join(map(str, samples[:-1]))
    return f", in rows {named} and {samples[-1]} of the batch"
