"""What custom Functions keep on their ``ctx`` and others hold as well: the graph does not own it.

A settings object with a cache, a bound method with its whole trainer: freeing the graph would free
nothing of these, so they are no bytes of the graph's. What is in a list that only ``ctx`` holds
is.

Python's own garbage collector tells one from the other by counting, and so does this: of each
object that is reached from the nodes, the references that come from objects which are reached too
are taken off its reference count. If any are left, it is held elsewhere, with all that can be
reached from it (``deduce_unreachable`` in ``Modules/gcmodule.c`` of CPython). It is done for all
nodes together, as several may keep the same list. Of tensors it is not asked: one that is on
``ctx`` itself, or in what only the graph holds, counts as if it had been saved for backward, which
keeps a tensor whoever else holds it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from workbench.graph.tensors_within import MOST_OBJECTS, held_by, holds_nothing


@dataclass
class HeldElsewhere:
    """Objects that the graph does not own; valid while the graph lives."""

    ids: set[int] = field(default_factory=set[int])
    tensors: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    """What is in them, where the graph may hold it in another way too."""
    is_complete: bool = True
    """Whether everything was looked at; what was not may make others look as if held elsewhere."""


def held_elsewhere(contexts: Iterable[dict[str, Any]], most: int = MOST_OBJECTS) -> HeldElsewhere:
    """Of all that is reached from ``contexts``, what others hold as well.

    Args:
        contexts: the attributes of each node; the caller keeps no other reference to what is in
            them.
        most: objects that are looked at.
    """
    reached, from_inside, is_complete = _reached_from(contexts, most)
    counts = _reference_counts(reached)
    (ours,) = _reference_counts({0: object()}).values()
    pending = [one for key, one in reached.items() if counts[key] > ours + from_inside[key]]
    result = HeldElsewhere(is_complete=is_complete)
    while pending:
        value = pending.pop()
        if issubclass(type(value), torch.Tensor):
            result.tensors.append(value)
        elif id(value) in reached and id(value) not in result.ids:
            result.ids.add(id(value))
            pending += held_by(value) or ()
    return result


def _reached_from(
    contexts: Iterable[dict[str, Any]], most: int
) -> tuple[dict[int, Any], Counter[int], bool]:
    """Objects by ``id``, how many references to each come from among them, whether that is all."""
    reached: dict[int, Any] = {}
    from_inside: Counter[int] = Counter()
    is_complete = True
    pending = [value for context in contexts for value in context.values()]
    while pending:
        value = pending.pop()
        if holds_nothing(value) or issubclass(type(value), torch.Tensor):
            continue
        from_inside[id(value)] += 1
        if id(value) in reached:
            continue
        if len(reached) >= most:
            is_complete = False
            continue
        reached[id(value)] = value
        pending += held_by(value) or ()
    return reached, from_inside, is_complete


def _reference_counts(values: dict[int, Any]) -> dict[int, int]:
    """Those from ``values``, and from here, included."""
    return {key: sys.getrefcount(value) for key, value in values.items()}
