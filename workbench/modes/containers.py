"""Python's own containers: what is in one, and how it is given back.

A container is filled again and not replaced: others may hold it too.
"""

from __future__ import annotations

from collections import deque
from typing import Any, cast

CONTAINERS = (list, dict, set, deque)


def contents_of(one: Any) -> list[Any]:
    """What is in a container; of a dictionary pairs."""
    return list(cast("dict[Any, Any]", one).items() if isinstance(one, dict) else one)


def refill(one: Any, contents: list[Any]) -> None:
    """Give a container what it held, where it holds anything else now."""
    now = contents_of(one)
    if len(now) == len(contents) and all(map(_is_same, now, contents)):
        return
    one.clear()
    if isinstance(one, dict):
        for key, value in contents:
            one[key] = value
    else:
        (one.update if isinstance(one, set) else one.extend)(contents)


def _is_same(now: Any, before: Any) -> bool:
    """Whether it is the very same element; pairs of a dictionary are made anew each time."""
    if now is before:
        return True
    if type(now) is tuple and type(before) is tuple and len(now) == len(before) == 2:
        return now[0] is before[0] and now[1] is before[1]
    return False
