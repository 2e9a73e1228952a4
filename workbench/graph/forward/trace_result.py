"""The result of tracing one forward: plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.graph.forward.branches import BranchesSeen
from workbench.graph.forward.graph_exits import GraphExitsSeen

if TYPE_CHECKING:
    from workbench.graph.core.walk import Walk
    from workbench.graph.forward.function_mode import Call


@dataclass(frozen=True)
class TraceResult:
    """Numbers and names that one `workbench.graph.forward.forward_trace.Trace` recorded."""

    thread: int
    first: int
    """Sequence number when it started."""
    last: int
    """Sequence number when it ended."""
    paths: tuple[str, ...]
    """Module paths that ``owner`` indexes."""
    owner_at: tuple[int, ...]
    owner: tuple[int, ...]
    """From number ``owner_at[i]`` on, the innermost module was ``owner[i]``."""
    calls: tuple[Call, ...]
    inputs: tuple[Any, ...]
    """Weak references to the storages of the arguments of the outermost calls."""
    elsewhere: tuple[tuple[int, int], ...] = ()
    """First and last number on each other thread on which modules ran, unseen."""
    forward_s: tuple[float, ...] = ()
    """Per path, seconds its forwards took, including all they contain; 0 if it never ran."""
    graph_exits: GraphExitsSeen = field(default_factory=GraphExitsSeen)
    """Where values left the graph."""
    branches: BranchesSeen = field(default_factory=BranchesSeen)
    """Tests of tensor values in Python."""
    compiled: frozenset[str] = frozenset()
    """Paths that ran as compiled code: their inside was not watched."""

    @property
    def ran_elsewhere(self) -> bool:
        """Whether a module also ran on another thread."""
        return bool(self.elsewhere)

    def lines_alone(self) -> TraceResult:
        """The result without modules, for a graph that has nothing of the model that was traced."""
        return dataclasses.replace(
            self, owner_at=(), owner=(), graph_exits=GraphExitsSeen(), forward_s=()
        )

    def watched(self, graph: Walk) -> Walk:
        """Return ``graph`` with numbers past `last` for nodes that another thread may have made.

        Each thread counts separately, so a number that two threads used does not identify a node.
        """
        if not self.elsewhere:
            return graph
        sequence = graph.sequence.copy()
        for first, last in self.elsewhere:
            sequence[(graph.sequence >= first) & (graph.sequence < last)] = self.last
        return dataclasses.replace(graph, sequence=sequence)

    def seconds(self) -> dict[str, float]:
        """Path -> `forward_s`, of the modules that ran."""
        pairs = zip(self.paths, self.forward_s, strict=False)
        return {path: seconds for path, seconds in pairs if seconds > 0}


def trace_notes(trace: TraceResult | None) -> list[str]:
    """What watching the forward missed, one sentence each."""
    if trace is None or not trace.graph_exits.fault:
        return []
    return [
        "Watching for places where values leave the graph failed halfway, so the reasons given for "
        f"parameters without a gradient may be incomplete ({trace.graph_exits.fault})."
    ]
