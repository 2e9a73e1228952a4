"""Search for the tensors that Python objects hold: in containers, attributes, closures.

A custom Function may keep any object on its ``ctx``, a pack hook may return any object, and a
tensor subclass may have its memory anywhere. No user code runs during the search: what an object
refers to is what it reports to Python's garbage collector (`gc.get_referents`).

Objects of classes of torch and of this package (modules, optimizers, datasets, process groups) live
on their own and are not searched: freeing a graph does not free them. Distributions are searched:
they are arguments in another form.
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
"""Maximum number of objects that one `Search` inspects, about a tenth of a second."""

_EMPTY = frozenset(
    {
        *(type(None), type(Ellipsis), bool, int, float, complex, str, bytes, bytearray, range),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    }
)
"""Types whose values refer to nothing, and of which there may be many."""
_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)
_CALLABLES = (types.FunctionType, types.CellType, functools.partial)
_OF_THE_PROGRAM = (type, types.ModuleType, Enum, *weakref.ProxyTypes, weakref.ref)
"""Classes and modules live anyway, and a weak reference keeps nothing alive."""
_CLOSED = (
    *(torch.autograd.graph.Node, torch.autograd.function.FunctionCtx),
    *(types.FrameType, types.TracebackType),
)
"""Types that lead to another graph, or to the whole program."""
_INDEPENDENT_PACKAGES = ("torch", "workbench")


@dataclass
class Found:
    """What was found in one value."""

    tensors: list[torch.Tensor] = field(default_factory=list["torch.Tensor"])
    """Each tensor once, in order."""
    closed: list[str] = field(default_factory=list[str])
    """Class of each object that holds something but cannot be inspected."""
    is_complete: bool = True
    """Whether everything was inspected."""


class Search:
    """Searches values for tensors, up to a maximum number of objects.

    Args:
        most: number of objects to inspect; the rest is left out.
        into_objects: whether to search the attributes of instances too, not only containers and
            what functions refer to.
        leave_out: ``id`` of objects that are not searched.
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
        """The values in `_known`: an id may be given to another object once the first is gone."""

    def within(self, value: Any) -> Found:
        """The tensors in ``value``, which may be a tensor itself; tensors are not searched."""
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
        """Release everything that was inspected."""
        self._known.clear()
        self._alive.clear()

    def attributes(self, value: Any) -> Found:
        """The tensors in the attributes of ``value``, whatever its class."""
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
    """Whether ``value`` is a number, a string or the like, of which there may be many."""
    return type(value) in _EMPTY


def held_by(value: Any, *, into_objects: bool = True) -> Iterable[Any] | None:
    """Objects that ``value`` refers to; None if they must not be inspected."""
    kind = cast("type[Any]", type(value))
    if issubclass(kind, types.FunctionType):
        return _held_by_function(value)
    if issubclass(kind, (*_CONTAINERS, *_CALLABLES)):
        return gc.get_referents(value)
    if not into_objects or issubclass(kind, _OF_THE_PROGRAM):
        return ()
    if issubclass(kind, _CLOSED):
        return None
    if any(map(_is_independent, kind.__mro__)):
        return ()
    if issubclass(kind, np.ndarray):
        return _under_array(value)
    return gc.get_referents(value)


def _held_by_function(function: types.FunctionType) -> Iterable[Any]:
    """Objects that a function refers to, without the globals of its module."""
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


def _is_independent(cls: type) -> bool:
    package, _, rest = cls.__module__.partition(".")
    return package in _INDEPENDENT_PACKAGES and not rest.startswith("distributions")
