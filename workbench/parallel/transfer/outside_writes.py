"""What a training's code writes outside of its objects: globals, closures, attributes of classes.

A forward that appends to a list of the notebook appends, on a rank, to that rank's list, and the
notebook's list does not change. What objects keep comes back
(`workbench.parallel.transfer.object_state`); what is reached only by a name does not, so it is
named before the ranks start. It is found by reading the source of the methods of the model, the
loss, the optimizer and the schedule, and of the user's functions that these name. A write through
another name (``mine = LOG; mine.append(1)``) is not seen.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from workbench.experiment.state.object_copy import never_changes
from workbench.experiment.state.user_code import may_be_user_module

if TYPE_CHECKING:
    from collections.abc import Iterable

_WRITERS = frozenset(
    {
        *("add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert"),
        *("pop", "popitem", "popleft", "put", "remove", "setdefault", "sort", "update", "write"),
    }
)
"""Methods that change what they are called on; so do those of a tensor that end with an
underscore."""
_MOST_FUNCTIONS = 2_000


def written_outside(objects: Iterable[Any]) -> list[str]:
    """Return names of what the code of ``objects`` writes outside of them, in the order found.

    Args:
        objects: objects whose classes are inspected; functions are inspected themselves.
    """
    waiting: list[types.FunctionType] = []
    classes: dict[type[Any], None] = {}
    for one in objects:
        if isinstance(one, types.FunctionType):
            waiting.append(one)
        classes |= dict.fromkeys(
            cls for cls in type(one).__mro__ if may_be_user_module(cls.__module__)
        )
    waiting += [function for cls in classes for function in _methods(cls)]
    found: dict[str, None] = {}
    seen: set[types.CodeType] = set()
    while waiting and len(seen) < _MOST_FUNCTIONS:
        function = waiting.pop(0)
        if function.__code__ in seen or not may_be_user_module(function.__module__):
            continue
        seen.add(function.__code__)
        found |= dict.fromkeys(_written_by(function))
        waiting += _named_by(function)
    return list(found)


def _methods(cls: type[Any]) -> Iterator[types.FunctionType]:
    for one in vars(cls).values():
        inner: Any = getattr(one, "__func__", None) or getattr(one, "fget", None) or one
        inner = getattr(inner, "__wrapped__", inner)
        if isinstance(inner, types.FunctionType):
            yield inner


def _named_by(function: types.FunctionType) -> Iterator[types.FunctionType]:
    """Yield the user's functions that it names, and methods of classes that it names."""
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, types.FunctionType):
            yield value
    for cell in function.__closure__ or ():
        value = _contents(cell)
        if isinstance(value, types.FunctionType):
            yield value


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _written_by(function: types.FunctionType) -> Iterator[str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError):  # no source, or a lambda in mid-line
        return
    outer = _Outer(function)
    rebound = {
        name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Global, ast.Nonlocal))
        for name in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in _WRITERS or (name.endswith("_") and not name.startswith("_")):
                yield from outer.reached(node.func.value)
        for target in _targets(node):
            if isinstance(target, ast.Name) and target.id in rebound and outer.has(target.id):
                yield target.id
            elif isinstance(target, (ast.Attribute, ast.Subscript)):
                yield from outer.reached(target.value, target)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a statement assigns or deletes."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        for each in node.targets:
            yield from _parts(each)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)):
        yield from _parts(node.target)


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for one in target.elts:
            yield from _parts(one)
    elif isinstance(target, ast.Starred):
        yield from _parts(target.value)
    else:
        yield target


class _Outer:
    """What a function reaches in addition to its arguments and its own variables."""

    def __init__(self, function: types.FunctionType) -> None:
        code = function.__code__
        self._own = {*code.co_varnames, *code.co_cellvars}
        self._cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        self._globals = function.__globals__

    def has(self, name: str) -> bool:
        """Return whether it is a variable around the function, or a global."""
        return name in self._cells or name not in self._own

    def reached(self, node: ast.expr, target: ast.expr | None = None) -> Iterator[str]:
        """Yield the name by which ``node`` is reached, unless what is there is an attribute."""
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            if isinstance(node, ast.Attribute) and node.attr == "__class__":
                yield from _of_a_class(target)
                return
            node = node.value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "type":
                yield from _of_a_class(target)
            return
        if not isinstance(node, ast.Name) or node.id == "__class__":
            return
        value = self._value(node.id)
        if isinstance(value, type) and may_be_user_module(value.__module__):
            yield from _of_a_class(target, f"{node.id}.")
        elif value is not None and not never_changes(value):
            yield node.id

    def _value(self, name: str) -> Any:
        if name in self._cells:
            return _contents(self._cells[name])
        return None if name in self._own else cast("Any", self._globals.get(name))


def _of_a_class(target: ast.expr | None, before: str = "") -> Iterator[str]:
    if isinstance(target, ast.Attribute):
        yield f"{before}{target.attr}{'' if before else ' of a class'}"
