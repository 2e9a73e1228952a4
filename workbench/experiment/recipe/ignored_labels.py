"""Find the label that a user's loss ignores, from the losses and the code that it calls.

``ignore_index`` is set on a loss module that is called, or given by keyword: as a constant, a
closed-over variable, a global, a default, or an attribute of ``self``. Bytecode has the names of a
call's keywords and, if they are as simple as that, their values right before it.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, cast

from torch import nn

from workbench.experiment.state.function_reach import reached

_NAME = "ignore_index"
_DEPTH = 3
"""Maximum depth of functions that call each other."""
_LOADS = {
    *("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_GLOBAL"),
    *("LOAD_DEREF", "LOAD_NAME"),
}
"""Instructions that put one value on the stack."""
_UNKNOWN = object()


class Ignored(NamedTuple):
    """The label that a loss ignores, as far as the loss specifies it."""

    label: int | None
    """None: it names none, or more than one."""
    is_readable: bool
    """Whether all that it specifies was understood."""


def ignored_label(function: Any) -> Ignored:
    """Return the ``ignore_index`` of the losses that ``function`` (any callable) calls."""
    found = set(_named(function, _DEPTH, set()))
    labels = {one for one in found if isinstance(one, int)}
    is_readable = _UNKNOWN not in found and len(labels) < 2
    return Ignored(labels.pop() if is_readable and labels else None, is_readable)


def _named(function: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    given: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        part = cast("functools.partial[Any]", function)
        given, function = {**part.keywords, **given}, part.func
    if id(function) in seen:
        return
    seen.add(id(function))
    called = function.forward if isinstance(function, nn.Module) else function
    if not isinstance(called, (FunctionType, MethodType)):
        called = getattr(called, "__call__", called)  # noqa: B004 - the method of an object
    values = [*given.values(), *(value for _, value in reached(called))]
    for module in (one for one in (function, *values) if isinstance(one, nn.Module)):
        for part in module.modules():
            if isinstance(part, (nn.CrossEntropyLoss, nn.NLLLoss)):
                yield part.ignore_index
    owner, plain = getattr(called, "__self__", None), getattr(called, "__func__", called)
    if not isinstance(plain, FunctionType) or _is_torchs(plain):
        return
    yield from _in_code(plain.__code__, _Scope(plain, owner, given))
    for value in values if depth else ():
        if isinstance(value, (FunctionType, functools.partial, nn.Module)):
            yield from _named(value, depth - 1, seen)


def _is_torchs(function: FunctionType) -> bool:
    name: Any = function.__globals__.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] == "torch"


class _Scope:
    """Values of a function's variables that no call changes."""

    def __init__(self, function: FunctionType, owner: Any, given: Mapping[str, Any]) -> None:
        code = function.__code__
        self._globals = function.__globals__
        self._closed: dict[str, Any] = {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self._closed[name] = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
        parameters = inspect.signature(function).parameters
        self._locals = {name: one.default for name, one in parameters.items()} | dict(given)
        if owner is not None and parameters:
            self._locals[next(iter(parameters))] = owner
        for one in dis.get_instructions(code):
            if one.opname.startswith("STORE_FAST"):
                written = one.argval if isinstance(one.argval, tuple) else (one.argval,)
                for name in cast("tuple[str, ...]", written):
                    self._locals.pop(name, None)

    def value(self, load: dis.Instruction) -> Any:
        """Return the value that ``load`` puts on the stack, or `_UNKNOWN`."""
        if load.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            return load.argval
        if load.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            return self._globals.get(load.argval, _UNKNOWN)
        for table in (self._closed, self._locals):
            found = table.get(load.argval, inspect.Parameter.empty)
            if found is not inspect.Parameter.empty:
                return found
        return _UNKNOWN


def _in_code(code: CodeType, scope: _Scope) -> Iterator[Any]:
    """Yield values of ``ignore_index`` in the calls of a function, and of those inside it."""
    instructions = [one for one in dis.get_instructions(code) if one.opname != "PRECALL"]
    for at, one in enumerate(instructions):
        names: Any = None
        if one.opname == "KW_NAMES" and one.arg is not None:
            names = code.co_consts[one.arg]  # Python 3.11 and 3.12
        elif one.opname == "LOAD_CONST" and instructions[at + 1].opname == "CALL_KW":
            names = one.argval
        if isinstance(names, tuple) and _NAME in names:
            after = len(cast("tuple[str, ...]", names)) - 1 - names.index(_NAME)
            found = _before(instructions[:at], after, scope)
            yield found if isinstance(found, int) else _UNKNOWN
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _in_code(inner, scope)


def _before(instructions: list[dis.Instruction], after: int, scope: _Scope) -> Any:
    """Return the value that was put on the stack ``after`` others before the end."""
    for number in range(after + 1):
        attributes: list[str] = []
        while instructions and instructions[-1].opname == "LOAD_ATTR":
            attributes.append(instructions.pop().argval)
        if not instructions or instructions[-1].opname not in _LOADS:
            return _UNKNOWN
        load = instructions.pop()
        if number == after:
            found = scope.value(load)
            for name in reversed(attributes):
                found = getattr(found, "__dict__", {}).get(name, _UNKNOWN)
            return found
    return _UNKNOWN
