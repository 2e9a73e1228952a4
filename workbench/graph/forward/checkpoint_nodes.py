"""Parameters inside ``torch.utils.checkpoint.checkpoint(..., use_reentrant=True)``.

Such a checkpoint runs its forward without gradients and leaves one node behind. Its backward runs
the forward again, with gradients, and calls a backward of that inner graph. So the parameters used
inside are no leaves of the loss's graph, but still get a gradient if the node is part of it
(``CheckpointFunction`` in ``torch/utils/checkpoint.py``). The record names them in a note, because
no node represents them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.graph.core.model_names import ModelNames
    from workbench.graph.core.walk import Ints, Walk
    from workbench.graph.forward.trace_result import TraceResult
    from workbench.records import GraphRecord

_START = "Used inside an activation checkpoint with use_reentrant=True: "
_END = (
    ". Backward reaches these through a graph that it makes anew then, which is not part of this "
    "one; with use_reentrant=False it would be."
)
UNWATCHED = (
    "This graph has no leaf for it and its forward was not watched. It may be used inside an "
    "activation checkpoint with use_reentrant=True, of which this graph has one: such a parameter "
    "gets its gradient through a graph that only backward makes. To know, run the forward inside "
    "`with wb.graph(model):`."
)
NODE = "CheckpointFunctionBackward"


class Checkpoints:
    """Records which parameters are used inside which reentrant checkpoint."""

    def __init__(self) -> None:
        self._number = -1
        self._users: dict[str, set[int]] = defaultdict(set)

    def enter(self, number: int) -> None:
        """Begin a checkpoint that has taken ``number`` for its node and runs its forward next."""
        self._number = number

    def uses(self, names: Iterable[str]) -> None:
        """Record that the running checkpoint has computed with these parameters."""
        for name in names:
            self._users[name].add(self._number)

    def seen(self) -> dict[str, frozenset[int]]:
        """Parameter -> numbers of the nodes of the checkpoints that use it."""
        return {name: frozenset(numbers) for name, numbers in self._users.items()}


def has_reentrant(types: Collection[str]) -> bool:
    """Whether a graph with nodes of these types has such a checkpoint."""
    return NODE in types


def recomputed_names(trace: TraceResult | None, graph: Walk) -> set[str]:
    """Parameters that the backward of a checkpoint in ``graph`` reaches."""
    users: Mapping[str, frozenset[int]] = {} if trace is None else trace.graph_exits.recomputed
    if not users:
        return set()
    numbers: Ints = graph.sequence
    present = set(numbers.tolist())
    return {name for name, nodes in users.items() if not nodes.isdisjoint(present)}


def recomputed_notes(names: ModelNames, recomputed: Collection[str]) -> list[str]:
    """A note that names ``recomputed``, whole modules by their path; none if it is empty."""
    if not recomputed:
        return []
    inside: list[list[str]] = [[] for _ in names.modules]
    for key, (name, row) in names.parameters.items():
        while row >= 0 and key not in names.frozen:
            inside[row].append(name)
            row = names.modules[row].parent  # noqa: PLW2901 - climbing
    left = set(recomputed)
    named: list[str] = []
    for module, own in zip(names.modules, inside, strict=True):  # parents first
        if module.path and own and left.issuperset(own):
            named.append(f"`{module.path}.*`")
            left.difference_update(own)
    named += [f"`{name}`" for name in recomputed if name in left]
    return [f"{_START}{', '.join(named)}{_END}"]


def is_recomputed(record: GraphRecord, name: str) -> bool:
    """Whether the note of `recomputed_notes` in ``record`` names the parameter ``name``."""
    named = "".join(note for note in record.notes if note.startswith(_START))
    parts = name.split(".")
    modules = (".".join(parts[:count]) for count in range(1, len(parts)))
    return f"`{name}`" in named or any(f"`{path}.*`" in named for path in modules)
