"""Python's own containers: their contents, and how these are restored.

A container is filled again and not replaced, because others may hold it too. Of a subclass, the
contents of Python's own class are read, bypassing the methods of the subclass: these may count,
draw or load what is requested of them.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

CONTAINERS = (list, dict, set, deque)


def contents_of(one: Any) -> list[Any]:
    """Contents of a container; for a dictionary, its pairs."""
    own = pythons_own(cast("type[Any]", type(one)))
    return list(own.items(one) if issubclass(own, dict) else own.__iter__(one))


def values_of(one: Any) -> Iterable[Any]:
    """Contents of a container or a tuple; for a dictionary, without its keys."""
    own = pythons_own(cast("type[Any]", type(one)))
    return own.values(one) if issubclass(own, dict) else own.__iter__(one)


def size_of(one: Any) -> int:
    """Number of elements in a container or a tuple."""
    return pythons_own(cast("type[Any]", type(one))).__len__(one)


def refill(one: Any, contents: list[Any]) -> None:
    """Restore the contents of a container, if it holds anything else now."""
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
    """Python's own class that a container's class is, or is derived from."""
    return next(one for one in kind.__mro__ if one.__module__ in ("builtins", "collections"))


def _is_same(now: Any, before: Any) -> bool:
    """Whether it is the very same element; pairs of a dictionary are created again each time."""
    if now is before:
        return True
    if type(now) is tuple and type(before) is tuple and len(now) == len(before) == 2:
        return now[0] is before[0] and now[1] is before[1]
    return False
