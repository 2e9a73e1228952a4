"""Explanation of why a parameter gets no gradient from a loss: one sentence with its line.

Only what is certain is reported: a graph exit is named as the cause only if the loss was seen to
use a value that comes from it. For a loss whose forward was not watched, it is reported that a
parameter is frozen or not reached, but not why.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from workbench.graph.capture.call_columns import Table
from workbench.graph.core.frozen_parameters import FrozenText
from workbench.graph.forward.checkpoint_nodes import UNWATCHED as IN_CHECKPOINT
from workbench.graph.forward.graph_exits import CHECKPOINT, GraphExit, GraphExitsSeen
from workbench.records import Unreached
from workbench.records.source import source_line

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from workbench.graph.core.model_names import Leaves, ModelNames
    from workbench.graph.core.source_lines import Place
    from workbench.graph.core.walk import Ints
    from workbench.graph.forward.trace_result import TraceResult
    from workbench.records import SourceLine
    from workbench.records.graph import UnreachedReason


# Description of what a graph exit did.


def _sentence(graph_exit: GraphExit, *, taken: bool, leads: bool) -> str:
    """Describe what ``graph_exit`` did, in one sentence.

    Args:
        graph_exit: the graph exit.
        taken: whether it took the parameter itself, not something computed from it.
        leads: whether its value was seen to continue as a tensor towards the loss.
    """
    what = "it" if taken else "what was computed from it"
    op = ".data" if graph_exit.op == "data" else graph_exit.op
    who = f"`{op}`{at(graph_exit.module, graph_exit.place)}"
    if graph_exit.escapes_as and not leads:
        result = f"{graph_exit.escapes_as}, which carries no gradient"
        if graph_exit.op in {"item", "tolist", "float", "int"}:
            return f"{who} converted {what} to {result}."
        return f"{who} detached {what} from the graph; it continued as {result}."
    if graph_exit.reason == "no_grad":
        return f"{who} used {what} under {graph_exit.how}."
    if graph_exit.how == "custom Function":
        return f"The custom Function {who} returned a result without gradient for {what}."
    if graph_exit.how == "through .data":
        return f"{who} wrote {what} through `.data`, which autograd does not see."
    if graph_exit.reason == "detached":
        return f"{who} detached {what} from the graph."
    if graph_exit.op == "compiled region":
        where = at(graph_exit.module, graph_exit.place)
        return f"The {graph_exit.op}{where} returned a result that carries no gradient."
    if graph_exit.op == "grad":
        return (
            f"{who} returned gradients that are constants; pass create_graph=True to "
            "differentiate through them."
        )
    if graph_exit.how:
        return f"{who} cast {what} to {graph_exit.how}, which carries no gradient."
    return f"{who} is not differentiable: it detached {what} from the graph."


def at(module: str | None, place: Place | None) -> str:
    """Location of a graph exit: `` in `head` (model.py:12)``, ``""`` if unknown."""
    where = f" in `{module}`" if module else ""
    return where if place is None else f"{where} ({source_line(*place).label})"


_UNWATCHED = (
    "This loss does not reach it. Why is not known, because its forward was not watched: run it "
    "inside `with wb.graph(model):`."
)
_ELSEWHERE = (
    "This loss does not reach it, and no operation on the watched thread took it; part of the "
    "forward ran on another thread, unseen."
)


_NO_INPUTS = (
    "No tensor given to the checkpoint requires grad, so torch gives its result no gradient; with "
    "use_reentrant=False it would."
)


@dataclass(frozen=True)
class Explained:
    """A parameter without a gradient, its reason, one sentence, and the line of the graph exit."""

    name: str
    reason: UnreachedReason
    text: str
    place: Place | None = None


def explain(
    names: ModelNames,
    reached: Collection[str],
    sequence: Ints,
    trace: TraceResult | None,
    *,
    has_checkpoint: bool = False,
) -> list[Explained]:
    """Explain every parameter of ``names`` that is not among ``reached``, in the model's order.

    Args:
        names: names of the parameters of the models.
        reached: names of the parameters that backward from the loss reaches.
        sequence: sequence numbers of the loss's nodes.
        trace: what was recorded of the forward, if it was watched.
        has_checkpoint: whether the loss's graph has a reentrant activation checkpoint.
    """
    missing = [
        (key, name, row) for key, (name, row) in names.parameters.items() if name not in reached
    ]
    if not missing:
        return []
    frozen = FrozenText(names)
    why = None if trace is None else _Watched(names, trace, sequence)
    found: list[Explained] = []
    for key, name, row in missing:
        if key in names.frozen:
            found.append(Explained(name, "frozen", frozen.of(row)))
        elif why is None:
            text = IN_CHECKPOINT if has_checkpoint else _UNWATCHED
            found.append(Explained(name, "off_path", text))
        else:
            found.append(why.of(name, row))
    return found


def reached_names(leaves: Leaves, names: ModelNames, owner: Ints) -> set[str]:
    """Names of the parameters that are leaves of the graph.

    FSDP2 computes with a parameter of its own in place of the module's: if a leaf is a parameter
    that the model does not name, the parameters of its module count as reached.
    """
    reached = {name for name in leaves.name if name}
    foreign = {
        int(owner[row])
        for row, kind in enumerate(leaves.kind)
        if kind == "parameter" and not leaves.name[row]
    }
    if foreign:
        reached |= {name for name, row in names.parameters.values() if row in foreign}
    return reached


def unreached_rows(
    missing: Sequence[Explained], sources: tuple[SourceLine, ...]
) -> tuple[tuple[Unreached, ...], tuple[SourceLine, ...]]:
    """The record's rows, and ``sources`` with their lines added."""
    table = Table(sources)
    rows: dict[Place, int] = {}
    found: list[Unreached] = []
    for one in missing:
        row = -1
        if one.place is not None:
            if one.place not in rows:
                rows[one.place] = table.row(source_line(*one.place))
            row = rows[one.place]
        found.append(Unreached(name=one.name, reason=one.reason, text=one.text, source=row))
    return tuple(found), tuple(table.items)


class _Watched:
    """Explains missing gradients from a trace of the forward."""

    def __init__(self, names: ModelNames, trace: TraceResult, sequence: Ints) -> None:
        self._names = names
        self._trace = trace
        self._seen = trace.graph_exits
        self._ran = set(trace.seconds())
        self._masks = exits_before(trace.graph_exits, sequence)
        """The set of graph exits behind each value that comes from exits and that the loss used."""
        self._leading = reduce(or_, self._masks, 0)
        self._inside = sum(
            1 << row
            for row, graph_exit in enumerate(self._seen.exits)
            if graph_exit.how == CHECKPOINT
        )
        """Exits inside activation checkpoints, which are no exits if these checkpoints have
        nodes."""
        self._escaped = sum(
            1 << row for row, graph_exit in enumerate(self._seen.exits) if graph_exit.escapes_as
        )

    def of(self, name: str, row: int) -> Explained:
        inside = self._seen.behind.get(name, 0) & self._inside
        behind = self._seen.behind.get(name, 0) & ~self._inside | self._after(inside)
        taken = self._seen.taken.get(name, 0)
        if behind & self._leading:
            return self._at_exit(name, behind & self._leading)
        if behind & self._escaped:
            return self._at_exit(name, behind & self._escaped)
        if inside & self._leading:
            return self._without_inputs(name, inside & self._leading)
        call = self._seen.used.get(name)
        if call is None and taken:
            return self._taken(name, taken)
        if call is None:
            return self._unused(name, row)
        use = self._trace.calls[call]
        text = f"`{use.op}`{at(None, use.place)} used it, but nothing computed from that reaches "
        graph_exit = self._last(behind) if behind else None
        if graph_exit is not None:
            where = at(graph_exit.module, graph_exit.place)
            text += f"this loss; it was last seen at `{graph_exit.op}`{where}."
            return Explained(name, "off_path", text, use.place)
        return Explained(name, "off_path", text + "this loss.", use.place)

    def _after(self, inside: int) -> int:
        """The graph exits of values that came out of activation checkpoints."""
        later = (
            row for row, graph_exit in enumerate(self._seen.exits) if graph_exit.before & inside
        )
        return sum(1 << row for row in later) & ~self._inside

    def _without_inputs(self, name: str, exits: int) -> Explained:
        """Explain a parameter whose checkpoint has no node though its result reaches the loss."""
        graph_exit = self._last(exits)
        text = _sentence(graph_exit, taken=bool(self._seen.taken.get(name, 0) & exits), leads=True)
        return Explained(name, graph_exit.reason, f"{text} {_NO_INPUTS}", graph_exit.place)

    def _last(self, exits: int) -> GraphExit:
        return self._seen.exits[exits.bit_length() - 1]

    def _at_exit(self, name: str, exits: int) -> Explained:
        row = exits.bit_length() - 1
        graph_exit = self._seen.exits[row]
        taken = bool(self._seen.taken.get(name, 0) >> row & 1)
        text = _sentence(graph_exit, taken=taken, leads=bool(self._leading >> row & 1))
        again = self._again(row)
        if again is not None:
            where = at(again.module, again.place)
            text += f" Further on, `{again.op}`{where} detaches the result of that again."
        return Explained(name, graph_exit.reason, text, graph_exit.place)

    def _again(self, row: int) -> GraphExit | None:
        """The last of the exits through which alone the value of exit ``row`` reaches the loss."""
        later = self._after(1 << row)
        masks = [mask for mask in self._masks if mask >> row & 1]
        if not masks or any(not mask & later for mask in masks):
            return None
        return self._last(later & self._leading)

    def _taken(self, name: str, exits: int) -> Explained:
        """Explain a parameter used only by exits whose results do not reach the loss either."""
        graph_exit = self._last(exits)
        text = _sentence(graph_exit, taken=True, leads=True)
        text += " The result of that does not reach this loss."
        return Explained(name, graph_exit.reason, text, graph_exit.place)

    def _unused(self, name: str, row: int) -> Explained:
        module = self._names.modules[row]
        region = self._compiled_around(row)
        where = f"its module `{module.path}`" if module.path else "the model"
        if region is not None:
            inside = f"`{region}`" if region else "the whole model"
            text = f"The compiled code of {inside} does not take it."
        elif self._trace.ran_elsewhere:
            text = _ELSEWHERE
        elif module.path in self._ran:
            text = f"No operation took it, though {where} ran."
        elif self._is_container(row):
            text = "No operation took it."
        else:
            text = f"No operation took it: {where} did not run in this forward."
        return Explained(name, "unused", text)

    def _is_container(self, row: int) -> bool:
        """Whether modules inside ran while this one did not, as in a `ModuleList`."""
        prefix = self._names.modules[row].path + "."
        return any(path.startswith(prefix) for path in self._ran)

    def _compiled_around(self, row: int) -> str | None:
        while row >= 0:
            path = self._names.modules[row].path
            if path in self._trace.compiled:
                return path
            row = self._names.modules[row].parent
        return None


def exits_before(seen: GraphExitsSeen, sequence: Ints) -> set[int]:
    """The sets of graph exits whose values were used by the nodes numbered in ``sequence``."""
    if not seen.flows:
        return set()
    numbers = np.sort(sequence[sequence >= 0])
    first = np.searchsorted(numbers, [flow[0] for flow in seen.flows])
    last = np.searchsorted(numbers, [flow[1] for flow in seen.flows])
    return {seen.flows[row][2] for row in np.flatnonzero(last > first).tolist()}
