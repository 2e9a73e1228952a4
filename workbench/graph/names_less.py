"""A capture that names less than the other: of a loss alone, against one of a whole forward.

A forward that was watched gives each node its call, its line and the module that ran it. From a
loss alone modules are known by their parameters, and calls and lines not at all. Nothing of that is
a difference between the two graphs, so there nodes are compared by what both captures know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from workbench.records import GraphRecord


def names_less(a: GraphRecord, b: GraphRecord) -> Literal["A", "B", ""]:
    """The one capture that knows no call of its nodes while the other does; empty where none."""
    knows_a, knows_b = bool((a.node_call >= 0).any()), bool((b.node_call >= 0).any())
    if knows_a == knows_b:
        return ""
    return "B" if knows_a else "A"


def told_less(a: GraphRecord, b: GraphRecord) -> str:
    """One sentence that says which capture names less, and what; ``""`` where none does."""
    name = names_less(a, b)
    if not name:
        return ""
    less, more = (a, b) if name == "A" else (b, a)
    has_modules = any(module.cls for module in less.modules)
    what = ["modules by their parameters" if has_modules else "no modules", "no source lines"]
    if less.input_bytes < more.input_bytes:
        what.append("inputs counted as saved")
    return f"{name} was captured from a loss alone: {', '.join(what)}."
