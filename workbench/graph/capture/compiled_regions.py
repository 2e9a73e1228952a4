"""The operations inside the compiled nodes of a graph, as rows of a record.

A compiled region is one node of the autograd graph. Its backward graph is read from the node, with
the modules, shapes and lines of the forward operation that each of its operations is the backward
of (`backward_graph`); nothing is run, unpacked or compiled for it, and no reference to it is kept.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from workbench.graph.capture.call_columns import Table
from workbench.graph.capture.compiled_backward import (
    BackwardGraph,
    plain_graph,
    read_code,
    read_graph,
)
from workbench.graph.capture.compiled_modules import owners_inside
from workbench.graph.core.empty_columns import no_inner
from workbench.graph.core.graph_root import COMPILED_TYPE
from workbench.records.source import source_line
from workbench.torch_private.aot import backward_graph, cached_code, keep_when_cached, kept
from workbench.torch_private.autograd import forward_class

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from workbench.graph.capture.compiled_backward import BackwardOperation
    from workbench.graph.core.model_names import Leaves, ModelNames
    from workbench.graph.core.source_lines import Place
    from workbench.graph.core.walk import Ints, Walk
    from workbench.records import SourceLine

DROPPED = (
    "Of what runs inside {nodes} only the operations are known: torch dropped their modules, "
    "shapes and lines when it put the region into its cache on disk. They are kept of what is "
    "first compiled while Workbench is in use: by an Experiment, or after `wb.graph` was called. "
    "Call torch.compiler.reset() and capture the next step: torch then compiles it again."
)
UNREADABLE = "What runs inside {nodes} could not be read ({why})."


def watch_compiler() -> None:
    """From now on, keep the metadata of a region's backward graph when torch would drop it.

    Does nothing before torch's compiler is imported; costs a dictionary look-up when called again.
    """
    keep_when_cached(plain_graph)


@dataclass
class Inside:
    """The operations inside all compiled nodes, one entry each, in the order of the rows."""

    node: list[int] = field(default_factory=list[int])
    operations: list[BackwardOperation] = field(default_factory=list["BackwardOperation"])
    owner: list[int] = field(default_factory=list[int])
    """Row in the table of names, negative as in `owners`."""
    ends: list[int] = field(default_factory=list[int])
    links: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    notes: tuple[str, ...] = ()
    _unknown: dict[str, int] = field(default_factory=dict[str, int])
    """Note -> number of nodes that it applies to."""

    @classmethod
    def of(
        cls, graph: Walk, types: Sequence[str], names: ModelNames, leaves: Leaves, owner: Ints
    ) -> Inside:
        """Read the inside of every compiled node of ``graph``; ``owner`` must be complete."""
        found = cls()
        rows = [row for row, name in enumerate(types) if name == COMPILED_TYPE]
        if rows:
            watch_compiler()
        for row in rows:
            inside, unknown = _inside(graph.nodes[row])
            if unknown:
                found._unknown[unknown] = found._unknown.get(unknown, 0) + 1
            if inside is None:
                continue
            makers = graph.edge_from[graph.edge_to == row]
            parameters = [at for at in leaves.owner[makers].tolist() if at >= 0]
            own = int(owner[row])
            found._add(row, inside, owners_inside(inside, names.modules, own, parameters))
        found.notes = tuple(
            text.replace("{nodes}", "a compiled node" if n == 1 else f"{n:,} compiled nodes")
            for text, n in found._unknown.items()
        )
        return found

    def _add(self, row: int, inside: BackwardGraph, owners: list[int]) -> None:
        first = len(self.node)
        self.node += [row] * len(owners)
        self.operations += inside.operations
        self.owner += owners
        self.ends += inside.ends
        self.links += [(start + first, end + first) for start, end in inside.links]

    def columns(
        self, modules: npt.NDArray[np.int32], strings: Table[str], sources: tuple[SourceLine, ...]
    ) -> tuple[dict[str, Any], tuple[SourceLine, ...]]:
        """The record's columns, and ``sources`` with their lines added.

        Args:
            modules: ``owner`` as rows of the record's modules.
            strings: the record's table of strings, to which new ones are added.
            sources: the record's lines so far.
        """
        if not self.node:
            return no_inner(), sources
        lines = Table(sources)
        places = _places_now(self.operations)
        row_of = {place: lines.row(source_line(*place)) for place in dict.fromkeys(places) if place}
        links = np.array(self.links, dtype=np.int32).reshape(-1, 2)
        columns = {
            "inner_node": np.array(self.node, dtype=np.int32),
            "inner_op": strings.rows([one.op for one in self.operations]),
            "inner_module": modules,
            "inner_shape": strings.rows([one.shape for one in self.operations]),
            "inner_dtype": strings.rows([one.dtype for one in self.operations]),
            "inner_source": np.array([row_of.get(p, -1) if p else -1 for p in places], np.int32),
            "inner_ends": np.array(self.ends, dtype=np.uint8),
            "link_from": links[:, 0],
            "link_to": links[:, 1],
        }
        return columns, tuple(lines.items)


_known: WeakKeyDictionary[type, tuple[BackwardGraph | None, str]] = WeakKeyDictionary()
"""What was read of each region, by the class behind its nodes: read once, freed with the region."""


def _inside(node: Node) -> tuple[BackwardGraph | None, str]:
    """The backward graph of a node's region, and a note on what is missing from it."""
    region = forward_class(node)
    found = _known.get(region) if region is not None else None
    if found is None:
        try:
            found = _region(node)
        except Exception as error:  # noqa: BLE001 - a private format of torch's: never the user's error
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            found = None, UNREADABLE.replace("{why}", why)
        if region is not None:
            _known[region] = found
    return found


def _region(node: Node) -> tuple[BackwardGraph | None, str]:
    known = kept(node)
    if known is not None:
        return BackwardGraph.from_plain(known), ""
    graph = backward_graph(node)
    if graph is not None:
        found = read_graph(graph)
        return found, "" if found.is_described or not found.operations else DROPPED
    code = cached_code(node)
    if code:
        return read_code(code), DROPPED
    return None, UNREADABLE.replace("{why}", "torch keeps no backward graph for it")


def _places_now(operations: Sequence[BackwardOperation]) -> list[Place | None]:
    """The line of each operation; None if it has changed since the region was compiled."""
    known: dict[Place, Place | None] = {}
    found: list[Place | None] = []
    for one in operations:
        place = (one.filename, one.line, one.function)
        if place not in known:
            known[place] = _place_now(place, one.text)
        found.append(known[place])
    return found


def _place_now(place: Place, text: str) -> Place | None:
    filename, line, function = place
    for name in (filename, _cell_like(filename)):
        now = linecache.getline(name, line).strip() if name else ""
        if now and now == text:
            return name, line, function
    return None


def _cell_like(filename: str) -> str:
    """The file name of the same cell in this kernel: ipykernel names cells by process and hash."""
    path = PurePath(filename)
    if "ipykernel_" not in path.parent.name:
        return ""
    return next((name for name in list(linecache.cache) if name.endswith(path.name)), "")
