"""The tensors among what Python objects hold: in containers, attributes, closures.

A custom Function keeps what it likes on its ``ctx``, a pack hook returns what it likes, a tensor
subclass has its memory wherever it likes. Nothing of the user's runs while it is looked through:
what an object refers to is what it tells Python's garbage collector (`gc.get_referents`).

What torch and this package make objects of (modules, optimizers, datasets, process groups) lives on
its own and is not looked into: freeing a graph does not free it. Distributions are: they are
arguments by another name.
"""

from __future__ import annotations

import collections
import functools
import gc
import types
import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

import numpy as np
import torch

MOST_OBJECTS = 2**17
"""Objects that one `Search` looks at, about a tenth of a second."""

_EMPTY = frozenset(
    {
        *(type(None), type(Ellipsis), bool, int, float, complex, str, bytes, bytearray, range),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    }
)
"""Types whose values hold nothing, and of which there may be many."""
_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)
_CALLABLES = (types.FunctionType, types.CellType, functools.partial)
_OF_THE_PROGRAM = (type, types.ModuleType, Enum, *weakref.ProxyTypes, weakref.ref)
"""Classes and modules are there anyway, and a weak reference keeps nothing."""
_CLOSED = (
    *(torch.autograd.graph.Node, torch.autograd.function.FunctionCtx),
    *(types.FrameType, types.TracebackType),
)
"""From these on lies another graph, or the whole program."""
_WITH_LIVES_OF_THEIR_OWN = ("torch", "workbench")


@dataclass
class Found:
    """What was found in one value."""

    tensors: list[torch.Tensor] = field(default_factory=list["torch.Tensor"])
    """Each once, in order."""
    closed: list[str] = field(default_factory=list[str])
    """Class of each object that holds something and lets nobody look into it."""
    is_complete: bool = True
    """Whether everything was looked at."""


class Search:
    """Looks into values, until it has looked at so many that the rest is left out.

    Args:
        most: objects that are looked at.
        into_objects: whether to look at the attributes of instances too, not only into containers
            and at what functions bring along.
        leave_out: ``id`` of objects that are not looked into.
    """

    def __init__(
        self,
        most: int = MOST_OBJECTS,
        *,
        into_objects: bool = True,
        leave_out: Collection[int] = (),
    ) -> None:
        self._left = most
        self._into_objects = into_objects
        self._leave_out = leave_out
        self._known: dict[int, Found] = {}
        self._alive: list[Any] = []
        """What `_known` knows: an id is given to another object once the first is gone."""

    def within(self, value: Any) -> Found:
        """The tensors in ``value``, which may be one itself; they are not looked into."""
        if type(value) in _EMPTY:
            return _NOTHING
        if issubclass(type(value), torch.Tensor):
            return Found([value])
        if id(value) in self._leave_out:
            return _NOTHING
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = self._look([value])
            self._alive.append(value)
        return known

    def forget(self) -> None:
        """Hold nothing that was looked at any longer."""
        self._known.clear()
        self._alive.clear()

    def attributes(self, value: Any) -> Found:
        """The tensors in the attributes of ``value``, of whatever class it is."""
        return self._look(gc.get_referents(value), seen={id(value)})

    def _look(self, pending: list[Any], seen: set[int] | None = None) -> Found:
        found = Found()
        seen = set() if seen is None else seen
        pending.reverse()
        while pending:
            value = pending.pop()
            if type(value) in _EMPTY or id(value) in seen or id(value) in self._leave_out:
                continue
            if self._left <= 0:
                found.is_complete = False
                break
            self._left -= 1
            seen.add(id(value))
            if issubclass(type(value), torch.Tensor):
                found.tensors.append(value)
                continue
            held = held_by(value, into_objects=self._into_objects)
            if held is None:
                found.closed.append(type(value).__name__)
                continue
            parts = [part for part in held if type(part) not in _EMPTY]
            pending += reversed(parts)
        return found


_NOTHING = Found()


def holds_nothing(value: Any) -> bool:
    """Whether ``value`` is a number, a text or the like, of which there may be many."""
    return type(value) in _EMPTY


def held_by(value: Any, *, into_objects: bool = True) -> Iterable[Any] | None:
    """What ``value`` refers to; None where that is not to be looked at."""
    kind = cast("type[Any]", type(value))
    if issubclass(kind, types.FunctionType):
        return _brought_along(value)
    if issubclass(kind, (*_CONTAINERS, *_CALLABLES)):
        return gc.get_referents(value)
    if not into_objects or issubclass(kind, _OF_THE_PROGRAM):
        return ()
    if issubclass(kind, _CLOSED):
        return None
    if any(map(_lives_on_its_own, kind.__mro__)):
        return ()
    if issubclass(kind, np.ndarray):
        return _under_array(value)
    return gc.get_referents(value)


def _brought_along(function: types.FunctionType) -> Iterable[Any]:
    """What a function brings along: not the module whose globals it sees."""
    return [
        *(function.__closure__ or ()),
        *(function.__defaults__ or ()),
        *(function.__kwdefaults__ or {}).values(),
        *vars(function).values(),
    ]


def _under_array(array: Any) -> Iterable[Any] | None:
    """The tensor whose memory an array shares (`Tensor.numpy`), or the objects in it."""
    if array.dtype.hasobject:
        return array.ravel().tolist()
    return None if array.base is None else (array.base,)


def _lives_on_its_own(cls: type) -> bool:
    package, _, rest = cls.__module__.partition(".")
    return package in _WITH_LIVES_OF_THEIR_OWN and not rest.startswith("distributions")
