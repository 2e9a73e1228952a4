"""Assignment of the operations inside a compiled node to modules of the model.

Dynamo names modules from the frame that it compiled: ``L['self'].blocks.0.conv`` is the path of a
module below the local ``self`` of that frame. Dynamo does not record which module ``self`` was; it
may be the model, a block compiled by itself, or any module in whose forward the graph broke. It is
found as the module below which every path of the region is a module of the named class; among
equals (twelve equal blocks) it is the one that owns the parameters which lead into the node.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.graph.capture.compiled_backward import BackwardGraph, ModuleStack
    from workbench.records import GraphModule

_ROOT = re.compile(r"[LG]\['[^']*'\]")
_KEY = re.compile(r"\['?([^'\]]*)'?\]")
_TRANSPARENT = frozenset(
    {"_modules", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}
)
"""Parts of a path that are left out of module names."""
_SELF = "L['self']"


def owners_inside(
    graph: BackwardGraph,
    modules: Sequence[GraphModule],
    own: int,
    parameter_owners: Iterable[int],
) -> list[int]:
    """Row of ``modules`` that each operation belongs to.

    Args:
        graph: the operations inside one compiled node.
        modules: the table of names, parents first.
        own: the compiled node's own module, used where nothing is known; may be negative.
        parameter_owners: modules whose parameters lead into the node.
    """
    bases = _Bases(modules, own, Counter(parameter_owners))
    stacks = {one.modules for one in graph.operations}
    bases.find(stacks)
    owner_of = {stack: bases.owner(stack) for stack in stacks}
    owners = [owner_of[one.modules] for one in graph.operations]
    _place_sums(owners, graph, modules)
    return owners


def _place_sums(owners: list[int], graph: BackwardGraph, modules: Sequence[GraphModule]) -> None:
    """Assign each sum of gradients of one value to the module where the value was first used.

    Backward reaches that use last, so it is the last call in the sum; along residual connections
    the rest is a sum itself. A use by a leaf module (``norm``) counts as one by the module around
    it.
    """
    parents = {module.parent for module in modules}
    last: dict[int, int] = {}
    for maker, user in graph.links:
        if graph.operations[user].accumulates and not graph.operations[maker].accumulates:
            last[user] = max(maker, last.get(user, maker))
    for user, maker in last.items():
        owner = owners[maker]
        if owner >= 0:
            is_leaf = owner not in parents and modules[owner].parent >= 0
            owners[user] = modules[owner].parent if is_leaf else owner


class _Bases:
    """The module that each root (``L['self']``) stands for."""

    def __init__(self, modules: Sequence[GraphModule], own: int, parameters: Counter[int]) -> None:
        self._modules = modules
        self._own = own
        self._parameters = parameters
        self._row_of = {module.path: row for row, module in enumerate(modules)}
        self._base_of: dict[str, int] = {}

    def find(self, stacks: Iterable[ModuleStack]) -> None:
        entries: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for stack in stacks:
            for path, cls in stack:
                root, below = split_path(path)
                entries[root].add((below, cls))
        for root, below in entries.items():
            base = self._best(below)
            if base is not None:
                self._base_of[root] = base

    def owner(self, stack: ModuleStack) -> int:
        for path, cls in reversed(stack):
            root, below = split_path(path)
            row = self._below(self._base_of.get(root), below)
            if row is not None and self._modules[row].cls == cls:
                return row
        if not stack and len(self._base_of) == 1:  # code of the frame's own forward
            return self._base_of.get(_SELF, self._own)
        return self._own

    def _best(self, entries: set[tuple[str, str]]) -> int | None:
        longest = max(entries, key=lambda entry: len(entry[0]))
        candidates = [
            row for row in self._bases_of(*longest) if self._fits(row, entries) == len(entries)
        ]
        # A class that the model does not have (a wrapper of the user's) fits nowhere.
        candidates = candidates or self._bases_of(*longest)
        return max(candidates, key=self._rank, default=None)

    def _bases_of(self, below: str, cls: str) -> list[int]:
        """Modules that have a submodule of class ``cls`` at ``below``."""
        end = f".{below}" if below else ""
        paths = [
            module.path[: len(module.path) - len(below)].rstrip(".")
            for module in self._modules
            if module.cls == cls and (f".{module.path}".endswith(end))
        ]
        return [self._row_of[path] for path in paths if path in self._row_of]

    def _fits(self, base: int, entries: set[tuple[str, str]]) -> int:
        rows = ((self._below(base, below), cls) for below, cls in entries)
        return sum(row is not None and self._modules[row].cls == cls for row, cls in rows)

    def _rank(self, base: int) -> tuple[int, bool, int]:
        path = self._modules[base].path
        inside = sum(
            count
            for row, count in self._parameters.items()
            if row == base or path == "" or self._modules[row].path.startswith(f"{path}.")
        )
        return inside, base == self._own, -len(path)

    def _below(self, base: int | None, below: str) -> int | None:
        if base is None:
            return None
        path = self._modules[base].path
        return self._row_of.get(f"{path}.{below}" if path and below else path or below)


def split_path(path: str) -> tuple[str, str]:
    """``("L['self']", "blocks.0.conv")`` for ``L['self'].blocks[0].conv``."""
    root = _ROOT.match(path)
    start = root.end() if root else 0
    parts = _KEY.sub(r".\1", path[start:]).split(".")
    below = ".".join(part for part in parts if part and part not in _TRANSPARENT)
    return path[:start], below
