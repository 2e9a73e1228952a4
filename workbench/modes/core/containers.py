"""Python's own containers: what is in one, and how it is given back.

A container is filled again and not replaced: others may hold it too. Of a class that was made of
one, what Python's own kind holds is looked at, past methods of its own: they may count, draw or
load what they are asked for.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

CONTAINERS = (list, dict, set, deque)


def contents_of(one: Any) -> list[Any]:
    """What is in a container; of a dictionary pairs."""
    own = pythons_own(cast("type[Any]", type(one)))
    return list(own.items(one) if issubclass(own, dict) else own.__iter__(one))


def values_of(one: Any) -> Iterable[Any]:
    """What is in a container or a tuple; of a dictionary without its keys."""
    own = pythons_own(cast("type[Any]", type(one)))
    return own.values(one) if issubclass(own, dict) else own.__iter__(one)


def size_of(one: Any) -> int:
    """How much is in a container or a tuple."""
    return pythons_own(cast("type[Any]", type(one))).__len__(one)


def refill(one: Any, contents: list[Any]) -> None:
    """Give a container what it held, where it holds anything else now."""
    now = contents_of(one)
    if len(now) == len(contents) and all(map(_is_same, now, contents)):
        return
    own = pythons_own(cast("type[Any]", type(one)))
    own.clear(one)
    if issubclass(own, dict):
        for key, value in contents:
            own.__setitem__(one, key, value)
    else:
        (own.update if issubclass(own, set) else own.extend)(one, contents)


@lru_cache(maxsize=1_024)
def pythons_own(kind: type[Any]) -> Any:
    """The class of Python's own that a container's class is, or was made of."""
    return next(one for one in kind.__mro__ if one.__module__ in ("builtins", "collections"))


def _is_same(now: Any, before: Any) -> bool:
    """Whether it is the very same element; pairs of a dictionary are made anew each time."""
    if now is before:
        return True
    if type(now) is tuple and type(before) is tuple and len(now) == len(before) == 2:
        return now[0] is before[0] and now[1] is before[1]
    return False
