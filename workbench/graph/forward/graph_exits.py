"""Where a forward left the autograd graph: `detach`, ``no_grad``, `argmax`, ``.item()``.

A *graph exit* is a torch function that took a value which requires grad and returned one that
does not. What was computed from a parameter before the exit gets no gradient through it. Plain
data; `workbench.graph.forward.graph_exit_recorder` records it,
`workbench.graph.capture.missing_gradients` reads it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from workbench.torch_private.autograd import base_of

if TYPE_CHECKING:
    from workbench.graph.core.source_lines import Place
    from workbench.records.graph import UnreachedReason


CHECKPOINT = "an activation checkpoint (use_reentrant=True)"
"""`GraphExit.how` inside ``checkpoint(..., use_reentrant=True)``, which runs its forward without
gradients and again, with gradients, in backward: no graph exit if the checkpoint itself has a
node."""


@dataclass(frozen=True)
class GraphExit:
    """One place where values leave the graph, in a loop more than once; plain data."""

    reason: UnreachedReason
    op: str
    how: str
    """What turned gradients off (``torch.no_grad()``), the dtype of a cast, a kind of operation."""
    module: str | None
    """Path of the module that ran; None outside every module."""
    place: Place | None
    escapes_as: str = ""
    """What its value became, if that is no longer a tensor."""
    before: int = 0
    """The graph exits before this one, one bit each."""


@dataclass(frozen=True)
class GraphExitsSeen:
    """The graph exits of one forward; plain data. A set of exits is a number, one bit for each."""

    exits: tuple[GraphExit, ...] = ()
    behind: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parameter -> the exits whose value was computed from it."""
    taken: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parameter -> the exits that took the parameter itself."""
    used: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parameter -> the last call that made nodes from it directly."""
    flows: tuple[tuple[int, int, int], ...] = ()
    """(first, last, exits): nodes numbered first to last - 1 took a value that comes from exits."""
    recomputed: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    """Parameter -> the numbers of the checkpoints' nodes whose backward computes with it again."""
    fault: str = ""
    """The error that ended the watch; later exits are missing then."""


# Marks on tensors: which exits a value comes from, without keeping the tensor alive.


class Marks:
    """Tensor -> a number with one bit for each graph exit. Follows tensors by identity."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._origin: dict[int, tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor]]] = {}

    @property
    def any(self) -> bool:
        """Whether anything was marked yet."""
        return bool(self._found)

    def of(self, tensors: Iterable[torch.Tensor]) -> int:
        """The marks of all ``tensors`` together."""
        mask = 0
        for tensor in tensors:
            entry = self._found.get(id(tensor))
            if entry is not None and entry[0]() is tensor:  # else its id was reused
                mask |= entry[1]
        return mask

    def put(self, tensors: Iterable[torch.Tensor], mask: int) -> None:
        """Add ``mask`` to each of ``tensors``."""
        for tensor in tensors:
            self._found[id(tensor)] = (weakref.ref(tensor), mask | self.of((tensor,)))

    def put_base(self, tensor: torch.Tensor, mask: int) -> None:
        """Mark the base of ``tensor``, which was written in place: the base changed as well."""
        base = base_of(tensor)
        if base is not None:
            self.put((base,), mask)

    def alias(self, tensor: torch.Tensor, origin: torch.Tensor) -> None:
        """Record that ``tensor`` shares the memory of ``origin``, unseen by autograd."""
        self._origin[id(tensor)] = (weakref.ref(tensor), weakref.ref(origin))

    def origin_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The tensor that ``tensor`` is an alias of, if it is one."""
        entry = self._origin.get(id(tensor))
        return entry[1]() if entry is not None and entry[0]() is tensor else None
