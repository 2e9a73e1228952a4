"""Values that a function can reach by name: closed over, global, bound, or given beforehand."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

_LOOKED_UP = ("LOAD_GLOBAL", "LOAD_NAME")


def reached(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and values that ``function`` (any callable) has without being passed them.

    The attributes of an object are included if it is called, or one of its methods is; nothing is
    called here.
    """
    while isinstance(function, functools.partial):
        part = cast("functools.partial[Any]", function)
        yield from ((f"argument {at}", value) for at, value in enumerate(part.args))
        yield from part.keywords.items()
        function = part.func
    if isinstance(function, MethodType):
        yield "self", function.__self__
        yield from getattr(function.__self__, "__dict__", {}).items()
        function = function.__func__
    if isinstance(function, FunctionType):
        yield from _in_scope(function)
    elif hasattr(function, "__dict__"):
        yield from vars(function).items()


def _in_scope(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            yield name, parameter.default
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    for name in _names_in(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield names that are looked up globally; ``co_names`` holds those of attributes as well."""
    for one in dis.get_instructions(code):
        if one.opname in _LOOKED_UP:
            yield one.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names_in(inner)
