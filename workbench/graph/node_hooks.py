"""Hooks on the nodes of one graph, as few and as small objects as torch lets them be.

A deep graph has tens of thousands of nodes. What is made for each of them is looked through by
every collection of Python's garbage until the backward has ended, and that can cost more than the
backward; so a hook is one object, and of its handle nothing is kept.

A hook refers to its row, never to a node, and to its watch weakly: one whose watch is gone does
nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from workbench.graph.torch_private import (
    hook_table,
    in_compiled_autograd,
    without_dispatch,
    without_functions,
)

if TYPE_CHECKING:
    from torch.autograd.graph import Node
    from torch.utils.hooks import RemovableHandle

    from workbench.graph.gradients import GradientWatch

Slots = Sequence[tuple[int, int]]
"""(index of a gradient that a node hands out, row of the node that gets it)."""


class NodeHooks:
    """The hooks of one watch, until they are taken off."""

    def __init__(self, watch: weakref.ref[GradientWatch]) -> None:
        self._watch = watch
        self._tables: list[dict[int, Any]] = []
        self._ids: list[int] = []
        """By place in `_tables`."""

    def before(self, node: Node, row: int) -> None:
        """Have `GradientWatch.see` called before ``node`` runs."""
        self._keep(node.register_prehook(_Before(self._watch, row)))

    def after(self, node: Node, row: int, slots: Slots) -> None:
        """Have `GradientWatch.see_made` called after ``node`` has run."""
        self._keep(node.register_hook(_After(self._watch, row, slots)))

    def _keep(self, handle: RemovableHandle) -> None:
        self._tables.append(hook_table(handle))
        self._ids.append(handle.id)

    def take_off(self) -> None:
        """Take all of them off; safe to call twice, also from a destructor."""
        tables, self._tables = self._tables, []
        ids, self._ids = self._ids, []
        for table, hook in zip(tables, ids, strict=True):
            table.pop(hook, None)


class _Before:
    __slots__ = ("row", "watch")

    def __init__(self, watch: weakref.ref[GradientWatch], row: int) -> None:
        self.watch, self.row = watch, row

    def __call__(self, gradients: Any) -> None:
        look(self.watch, self.row, self.tell, gradients)

    def tell(self, alive: GradientWatch, gradients: Any) -> None:
        alive.see(self.row, gradients)


class _After(_Before):
    __slots__ = ("slots",)

    def __init__(self, watch: weakref.ref[GradientWatch], row: int, slots: Slots) -> None:
        super().__init__(watch, row)
        self.slots = slots

    def __call__(self, made: Any, _: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        look(self.watch, self.row, self.tell, made)

    def tell(self, alive: GradientWatch, gradients: Any) -> None:
        alive.see_made(self.row, self.slots, gradients)


def look(
    watch: weakref.ref[GradientWatch], row: int, tell: Callable[..., None], *what: Any
) -> None:
    """Call ``tell(watch, *what)`` unseen by modes; whatever it raises becomes a fault."""
    alive = watch()
    if alive is None:
        return
    try:
        if in_compiled_autograd():  # first: Dynamo reads this, and no further
            alive.see_compiled(row)
            return
        with without_functions(), without_dispatch():
            tell(alive, *what)
    except Exception as error:  # noqa: BLE001 - it must never end the user's backward
        alive.fault(error)
