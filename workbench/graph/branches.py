"""What Python asked of tensors while a forward ran; plain data.

`workbench.graph.branch_recorder` makes it, `workbench.graph.branch_rows` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.graph.branch_code import Number
    from workbench.graph.lines import Place


@dataclass(frozen=True)
class Asked:
    """One test of a tensor, ``if sure > limit:``."""

    place: Place
    condition: str
    symbol: str
    """Of the comparison (``>``); empty where it was none of two numbers."""
    numbers: tuple[Number | None, Number | None]
    """What was compared; of a test of one number that number and None; None where unknown."""
    taken: bool
    module: str | None
    """Path of the module that ran; None outside every module."""
    forward: int
    """The how manieth outermost forward of the trace it ran in, from 0; -1 outside."""
    at: int
    """Sequence number of the next node."""
    near: tuple[int, ...]
    """Sequence numbers of the nodes behind what was tested, latest first."""


@dataclass(frozen=True)
class Repeated:
    """A test that came out the same way more often than it is listed."""

    place: Place
    condition: str
    taken: bool
    times: int
    shown: int


@dataclass(frozen=True)
class BranchesSeen:
    """All that was asked, in that order."""

    asked: tuple[Asked, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    """Of the last forward."""
    fault: str = ""
    """What went wrong while watching; later tests are missing then."""
