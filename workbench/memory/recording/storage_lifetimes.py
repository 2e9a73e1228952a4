"""The lifetime of one storage, and the moments at which phases of a recording begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from workbench.memory.reading.call_tree import Line


class Block:
    """The lifetime of one storage.

    ``start`` and ``end`` are ticks during recording and event numbers afterwards; -1 stands for
    before and after. Times are ``perf_counter`` nanoseconds.
    """

    __slots__ = (
        "address",
        "call",
        "category",
        "device",
        "differentiable",
        "end",
        "ended_ns",
        "line",
        "module",
        "name",
        "num_bytes",
        "op",
        "outside_modules",
        "result",
        "start",
        "started_ns",
    )

    def __init__(self, num_bytes: int, device: str, address: int) -> None:
        self.num_bytes = num_bytes
        self.device = device
        self.address = address
        self.start = self.end = -1
        self.started_ns = self.ended_ns = 0
        self.op = self.name = self.module = self.category = ""
        self.line: Line | None = None
        self.call = -1
        """Row in the recorder's tree of calls."""
        self.outside_modules = False
        """Made by forward code, or by code between phases, that was not run by a module."""
        self.differentiable = False
        """Made in a backward that autograd recorded, for another backward."""
        self.result = False
        """Made under ``torch.autograd.grad``: what outlives the call is what it returned."""


class Mark(NamedTuple):
    """Where a phase begins; ``phase`` is ``""`` if none follows."""

    tick: int
    time_ns: int
    phase: str
