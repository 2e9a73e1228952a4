"""Answers about this machine that are found once and can be forgotten.

Whether a compiler is installed or a kernel runs does not change unless someone changes the machine,
and probing costs milliseconds to seconds, so every probe runs once per set of arguments. "Check
again" in the panel calls `forget`, and the next query runs the probe again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

_FORGETTERS: list[Callable[[], None]] = []


def once(probe: Callable[P, R]) -> Callable[P, R]:
    """Decorate ``probe`` so that it runs once per set of (hashable) arguments until `forget`.

    An exception is not remembered: the next call probes again.
    """
    cached = cache(probe)
    _FORGETTERS.append(cached.cache_clear)
    return cast("Callable[P, R]", cached)


def on_forget(action: Callable[[], None]) -> None:
    """Have `forget` call ``action`` too, for answers that are not cached by `once`."""
    _FORGETTERS.append(action)


def forget() -> None:
    """Discard every remembered answer."""
    for clear in _FORGETTERS:
        clear()


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its type if it has none: fit for one sentence."""
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__
