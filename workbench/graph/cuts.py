"""Where a forward left the autograd graph: `detach`, ``no_grad``, `argmax`, ``.item()``.

A *cut* is a torch function that took a value which requires grad and gave one that does not. What
was computed from a parameter before the cut gets no gradient through it. Plain data;
`workbench.graph.cut_recorder` makes it, `workbench.graph.unreached` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.graph.lines import Place
    from workbench.records.graph import UnreachedReason


CHECKPOINT = "an activation checkpoint (use_reentrant=True)"
"""`Cut.how` inside ``checkpoint(..., use_reentrant=True)``, which runs its forward without
gradients and again, with gradients, in backward: no cut where the checkpoint itself has a node."""


@dataclass(frozen=True)
class Cut:
    """One place where values leave the graph; plain data. A loop cuts many times in one place."""

    reason: UnreachedReason
    op: str
    how: str
    """What turned gradients off (``torch.no_grad()``), the dtype of a cast, a kind of operation."""
    module: str | None
    """Path of the module that ran; None outside every module."""
    place: Place | None
    escapes_as: str = ""
    """What its value became where that was no tensor any more."""
    before: int = 0
    """The cuts that lie before this one, one bit each."""


@dataclass(frozen=True)
class CutsSeen:
    """The cuts of one forward; plain data. A set of cuts is a number with one bit for each."""

    cuts: tuple[Cut, ...] = ()
    behind: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parameter -> the cuts whose value was computed from it."""
    taken: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parameter -> the cuts that took the parameter itself."""
    used: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parameter -> the last call that made nodes from it directly."""
    flows: tuple[tuple[int, int, int], ...] = ()
    """(first, last, cuts): nodes numbered first to last - 1 took a value that comes from cuts."""
    recomputed: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    """Parameter -> the numbers of the checkpoints' nodes whose backward computes with it again."""
    fault: str = ""
    """What went wrong while watching; later cuts are missing then."""
