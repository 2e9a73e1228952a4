"""The dtype in which an operation computes, read from a record: no live graph is needed.

A backward node knows the dtypes of the values that its forward took (those that need a gradient)
and returned. Casts and views compute nothing. What a Python function or compiled code does inside
is not in the graph, and is unknown (``""``); `workbench.dtypes` observes it while it runs.

Counterpart of ``extensions/views/src/graph/dtypes.ts``; the fixture ``graph-dtypes.json`` checks
that both agree.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.core.operations import VIEWS, operations_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.records import GraphRecord

MIXED = " + "
"""Separates the dtypes of an operation that computes in several."""
CAST = " → "
"""Separates the dtypes of an operation that only casts."""
_COPIES = re.compile("(Clone|Mt|Squeeze|ToCopy)Backward")
_PYTHON = re.compile("Backward$")
"""Matches a node of a Python function: torch numbers its own (``AddmmBackward0``)."""
_EIGHT_BITS = {"matmul_with_hp_or_float8_argsBackward": "float8", "mx_mmBackward": "mxfp8"}
"""Types in which torchao's training layers multiply; values around the product keep theirs."""
_SHORT = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64", "float8": "fp8",
    "mxfp8": "mxfp8",
}  # fmt: skip
COLOURS = {
    "bfloat16": "#a8d5a2", "float16": "#f6d186", "float8": "#e8a2a2", "mxfp8": "#e8a2a2",
    "float64": "#a9c4ec", "float32": "#ffffff",
}  # fmt: skip
"""Fill colours of the static pictures; black on each has a contrast of 9 : 1 or better."""
MIXED_COLOUR, OTHER_COLOUR, UNKNOWN_COLOUR = "#cdb7ea", "#d8d8d8", "#f0f0f0"


def computed_in(record: GraphRecord) -> list[str]:
    """Per row, the dtype in which its operation computes; ``""`` for leaves and if unknown.

    ``bfloat16``; ``bfloat16 + float32`` if it takes or returns both; ``float32 → bfloat16`` if it
    only casts.
    """
    rows_of: dict[int, list[int]] = defaultdict(list)
    owners = operations_of(record)
    for row, operation in enumerate(owners):
        rows_of[operation].append(row)
    read = _Types(record)
    known = {one: read.of(rows) for one, rows in rows_of.items() if one >= 0}
    return [known.get(operation, "") for operation in owners]


def count_types(record: GraphRecord) -> list[tuple[str, int]]:
    """(dtype, number of operations that compute in it), most first."""
    first = dict(zip(operations_of(record), computed_in(record), strict=True))
    first.pop(-1, None)
    return sorted(Counter(first.values()).items(), key=lambda item: (-item[1], item[0]))


def types_line(record: GraphRecord) -> str:
    """``Computed in bf16 (12 operations), bf16+fp32 (3)``; empty if all are float32."""
    counts = count_types(record)
    if all(computed in ("float32", "") for computed, _ in counts):
        return ""
    (computed, number), *rest = counts
    first = f"{short_type(computed)} ({number:,} operation{'s' * (number != 1)})"
    more = [f"{short_type(computed)} ({number:,})" for computed, number in rest[:5]]
    return f"Computed in {', '.join([first, *more])}{', …' * (len(rest) > 5)}."


def short_type(computed: str) -> str:
    """``bf16+fp32``, ``fp32→bf16``, ``unknown``."""
    sign = CAST if CAST in computed else MIXED
    names = [_SHORT.get(one, one) for one in computed.split(sign)]
    return sign.strip().join(names) or "unknown"


def fill_of(computed: str) -> str:
    """The fill colour for a dtype in a static picture."""
    if not computed:
        return UNKNOWN_COLOUR
    if CAST in computed:
        return COLOURS["float32"]
    return MIXED_COLOUR if MIXED in computed else COLOURS.get(computed, OTHER_COLOUR)


class _Types:
    def __init__(self, record: GraphRecord) -> None:
        text = record.strings
        self._name = [text[index] for index in record.node_type.tolist()]
        self._type = [text[index] for index in record.node_dtype.tolist()]
        self._makers: dict[int, list[int]] = defaultdict(list)
        by_user = np.argsort(record.edge_to, kind="stable")
        for edge in by_user.tolist():
            self._makers[int(record.edge_to[edge])].append(int(record.edge_from[edge]))

    def of(self, rows: Sequence[int]) -> str:
        name = self._name
        computing = [r for r in rows if name[r] not in VIEWS and not _COPIES.match(name[r])]
        if not computing:
            return self._cast(rows)
        types: set[str] = set()
        for row in computing:
            if name[row] in _EIGHT_BITS:
                types.add(_EIGHT_BITS[name[row]])
            elif _PYTHON.search(name[row]):
                return ""
            else:
                types.update(self._type[one] for one in (row, *self._makers[row]))
        return "" if "" in types else MIXED.join(sorted(types))

    def _cast(self, rows: Sequence[int]) -> str:
        given = self._type[rows[-1]]
        inside = set(rows)
        makers = (maker for row in rows for maker in self._makers[row] if maker not in inside)
        taken = next((self._type[one] for one in makers if self._type[one] not in ("", given)), "")
        return f"{taken}{CAST}{given}" if taken else given
