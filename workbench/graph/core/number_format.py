"""Formatting of numbers and names in the static views."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

from workbench.graph.core.operations import num_operations
from workbench.trust import printable

if TYPE_CHECKING:
    from workbench.records import GraphDiff, GraphRecord


BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def byte_size(count: int) -> str:
    """``56.1 MiB``: binary units, one decimal below 100.

    Gives the same figures as the browser: ``formatBytes`` in
    ``extensions/views/src/graph/format.ts``.
    """
    size, unit = float(count), BYTE_UNITS[0]
    for unit in BYTE_UNITS:
        if size < 1024 or unit == BYTE_UNITS[-1]:
            break
        size /= 1024
    return f"{fixed(size, 1 if size < 99.95 and unit != 'B' else 0)} {unit}"


def fixed(value: float, digits: int = 0) -> str:
    """Format a ``value`` of 0 or more with ``digits`` decimals, a half rounded up.

    This is the rule of JavaScript's ``toFixed``, while Python rounds a half to the even digit:
    256.5 gives 257. The exact value of the float is rounded: 0.35 is stored as a smaller number and
    gives 0.3.
    """
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def duration(seconds: float) -> str:
    """``9.7 ms``, ``180 µs``, ``1.24 s``: one decimal below 100; three digits of seconds."""
    if seconds == 0:
        return "0"
    if seconds >= 0.9995:
        rounded = Context(prec=3, rounding=ROUND_HALF_UP).create_decimal(seconds)
        return f"{fixed(seconds, max(0, 2 - rounded.adjusted()))} s"
    value, unit = (seconds * 1e3, "ms") if seconds >= 0.9995e-3 else (seconds * 1e6, "µs")
    return f"{fixed(value, 1 if value < 99.95 else 0)} {unit}"


def short(text: str, width: int) -> str:
    """``text`` made `printable`, of at most ``width`` characters; its middle is left out."""
    plain = printable(text)
    if len(plain) <= width:
        return plain
    head = (width - 1) // 2
    return f"{plain[:head]}…{plain[len(plain) - (width - 1 - head) :]}"


def tail(path: str, width: int) -> str:
    """The end of a module path, its most specific part, in at most ``width`` characters."""
    text = short(path, max(width, len(path)))
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"


def numbers_starred(path: str) -> str:
    """``encoder.layer.*.norm`` for every layer's: equal for paths that differ in numbers only."""
    return re.sub(r"\d+", "*", path)


def plural(count: int, noun: str) -> str:
    """``1 operation``, ``23 operations``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def compiled_line(record: GraphRecord) -> str:
    """``2 compiled nodes: 37 operations inside, in 9 modules.``; empty if none are known inside."""
    if len(record.inner_node) == 0:
        return ""
    num_nodes = len(set(record.inner_node.tolist()))
    nodes = "Compiled" if num_nodes == 1 else f"{num_nodes:,} compiled nodes"
    inside = plural(len(record.inner_node), "operation")
    return (
        f"{nodes}: {inside} inside, in {plural(len(set(record.inner_module.tolist())), 'module')}."
    )


def summary(record: GraphRecord) -> str:
    """``38 operations, 16 parameters, 56.1 MiB saved for backward``, counted as in the browser."""
    kinds = record.node_kind.tolist()
    leaves = [(kinds.count(1), "parameter"), (kinds.count(2), "input")]
    parts = [plural(num_operations(record), "operation")]
    parts += [plural(count, noun) for count, noun in leaves if count]
    return ", ".join([*parts, f"{byte_size(record.saved_bytes)} saved for backward"])


def heading(record: GraphRecord) -> str:
    """``EarlyExitCNN, step 42: loss 0.377``; without a model ``loss 0.377, step 42``."""
    title = short(record.title, 80)
    if record.loss is None:
        return title
    loss = f"loss {record.loss:.4g}"
    name, _, rest = title.partition(", ")
    if name == "loss" and not record.model:
        return f"{loss}, {rest}" if rest else loss
    return f"{title}: {loss}"


def held_anyway(record: GraphRecord) -> str:
    """A sentence about what the saved bytes leave out, or ``""``."""
    named = [
        (record.input_bytes, "inputs"),
        (record.parameter_bytes, "parameters"),
        (record.buffer_bytes, "buffers"),
    ]
    parts = [f"{byte_size(count)} {noun}" for count, noun in named if count]
    return f"Not counted, because held anyway: {', '.join(parts)}." if parts else ""


def signed_bytes(change: int) -> str:
    """``−8.1 MiB``, ``+64 B``, ``0 B``: a difference of byte counts, with a true minus."""
    sign = "−" if change < 0 else "+" if change else ""
    return f"{sign}{byte_size(abs(change))}"


def significant(value: float) -> str:
    """``0.00525``, ``7.48e−5``: 3 significant digits, a true minus."""
    text = f"{value:.3g}"
    mantissa, _, exponent = text.partition("e")
    text = f"{mantissa}e{int(exponent)}" if exponent else text
    return text.replace("-", "−")


def ratio(before: float, after: float) -> str:
    """``× 3.4`` or ``÷ 7.0``; empty where one of them is 0 or not finite."""
    if not (math.isfinite(before) and math.isfinite(after) and before > 0 and after > 0):
        return ""
    factor = after / before
    return f"× {_factor(factor)}" if factor >= 1 else f"÷ {_factor(1 / factor)}"


def _factor(factor: float) -> str:
    return f"{factor:.1f}" if factor < 99.95 else significant(factor)


def diff_summary(diff: GraphDiff) -> str:
    """``− 12 removed, + 1 added, ≠ 3 changed, 13 same backward nodes``."""
    states = diff.node_state[(diff.node_kind == 0) | (diff.node_kind == 3)].tolist()
    same, removed, added, changed = (states.count(state) for state in range(4))
    return (
        f"− {removed:,} removed, + {added:,} added, ≠ {changed:,} changed, "
        f"{same:,} same backward nodes"
    )
