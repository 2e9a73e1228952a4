"""Queries of a record: one parameter's gradient, and a short list of all that get none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import TYPE_CHECKING

from workbench.graph.capture.module_rows import check_name
from workbench.graph.core.number_format import plural
from workbench.graph.forward.checkpoint_nodes import is_recomputed
from workbench.records import NODE_KINDS, GraphNode, Unreached

if TYPE_CHECKING:
    from workbench.records import GraphRecord

_PARAMETER = NODE_KINDS.index("parameter")
_MORE = (
    " It is used inside an activation checkpoint with use_reentrant=True as well, so this "
    "graph does not show its whole gradient."
)
_SAID = {
    "frozen": "frozen",
    "unused": "not used in this forward",
    "detached": "detached",
    "no_grad": "used without gradients",
    "not_differentiable": "used by an operation that is not differentiable",
    "off_path": "not on a path to this loss",
}


def why_no_gradient(record: GraphRecord, name: str) -> Unreached | str:
    """Explain why the parameter ``name`` gets no gradient from the loss of ``record``.

    Args:
        record: a captured graph.
        name: qualified name of a parameter; for a shared one, its first name in the model.

    Returns:
        The reason, if the loss does not reach it. Otherwise a sentence: that a gradient arrives,
        with its L2 norm if backward was watched, or that none or only zeros arrived, and the
        operation that gave them.

    Raises:
        TypeError: ``name`` is not a string.
        ValueError: the record has no such parameter; the message lists close names.
    """
    check_name(name, "the qualified name of a parameter, as in `model.named_parameters()`")
    for one in record.unreached:
        if one.name == name:
            return one
    leaves = _leaves(record)
    again = is_recomputed(record, name)
    if again and name not in leaves:
        return (
            f"Backward reaches `{name}` through an activation checkpoint with use_reentrant=True: "
            "it makes the graph of what is inside anew then, so this graph has no leaf for it, and "
            "how large its gradient is was not measured; with use_reentrant=False it would be."
        )
    if name not in leaves:
        raise ValueError(_unknown(record, name, leaves))
    return _reached(record, name, leaves[name]) + (_MORE if again else "")


def _reached(record: GraphRecord, name: str, row: int) -> str:
    """Sentence about the gradient of the parameter ``name``, a leaf in ``row``."""
    if not record.gradients:
        return (
            f"This loss reaches `{name}`, so backward gives it a gradient; how large is not known, "
            "because no backward of this graph has been watched."
        )
    if record.node_gradient_non_finite[row] < 0:
        return f"This loss reaches `{name}`, but no gradient arrived" + _upstream(
            record,
            row,
            lambda node: record.node_gradient_non_finite[node] >= 0,
            "received a gradient and passed none on",
        )
    if record.node_gradient_non_finite[row] == 0 and record.node_gradient_max[row] == 0:
        return f"`{name}` gets a gradient of only zeros" + _upstream(
            record,
            row,
            lambda node: (
                record.node_gradient_non_finite[node] > 0 or record.node_gradient_max[node] > 0
            ),
            "received a gradient and passed on only zeros",
        )
    bad = int(record.node_gradient_non_finite[row])
    if bad:
        values = plural(bad, "value")
        return f"`{name}` gets a gradient, but not a finite one: {values} NaN or infinite."
    return f"`{name}` gets a gradient: L2 norm {record.node_gradient_norm[row]:.3g}."


def unreached_lines(record: GraphRecord, max_lines: int = 8) -> list[str]:
    """Lines about the parameters without gradient, grouped by reason and sentence, largest first.

    ``158 parameters of `backbone` frozen: It is frozen: ...``. The last line counts what is left
    out.
    """
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in record.unreached:
        groups[one.reason, one.text].append(one.name)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    lines = [
        f"{_named(names)}: {_SAID[reason]}. {text}" for (reason, text), names in ordered[:max_lines]
    ]
    rest = sum(len(names) for _, names in ordered[max_lines:])
    return [*lines, f"… and {plural(rest, 'parameter')} more."] if rest else lines


def _named(names: list[str]) -> str:
    if len(names) == 1:
        return f"`{names[0]}`"
    parts = [name.split(".")[:-1] for name in names]
    shared: list[str] = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    where = f" of `{'.'.join(shared)}`" if shared else ""
    return f"{plural(len(names), 'parameter')}{where}"


def _leaves(record: GraphRecord) -> dict[str, int]:
    """Parameter -> its row."""
    return {
        record.strings[record.node_name[row]]: row
        for row, kind in enumerate(record.node_kind.tolist())
        if kind == _PARAMETER
    }


def _unknown(record: GraphRecord, name: str, leaves: Collection[str]) -> str:
    known = [known for known in (*leaves, *(one.name for one in record.unreached)) if known]
    close = ", ".join(map(repr, get_close_matches(name, known, n=4) or known[:4]))
    if not close:
        return (
            f"this graph knows no parameter {name!r}, nor any other name, because it was captured "
            "without its model; pass it as `model=`"
        )
    return (
        f"this graph knows no parameter {name!r}; close names are {close}. A shared parameter goes "
        "by its first name in the model"
    )


def _upstream(record: GraphRecord, row: int, arrived: Callable[[int], object], verb: str) -> str:
    """Clause about the nearest operation that received a gradient and passed none to ``row``."""
    users: dict[int, list[int]] = defaultdict(list)
    for maker, user in record.edges.tolist():
        users[maker].append(user)
    pending, seen = [row], {row}
    for maker in pending:  # grows while it is read: nearest first
        for user in users[maker]:
            if arrived(user):
                node = GraphNode.of(record, user)
                where = f" in `{node.module}`" if node.module else ""
                line = f" ({node.source.label})" if node.source is not None else ""
                return f": `{node.op}`{where}{line} {verb}."
            if user not in seen:
                seen.add(user)
                pending.append(user)
    return ": the backward that was watched did not reach it."
