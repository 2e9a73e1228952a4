"""A newer model that the user has built, or could build, since the one that failed was built.

A class takes its new methods when its cell runs again (`renew_classes`), but what `__init__`
created stays what it was: *Resume* would fail as before. So the code that builds each module is
recorded when the experiment takes the model, and a newer one is looked for once a step has failed:
under the name that the old one had, among the notebook's instances of the new class, or as a new
class that needs no argument.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from torch import nn

from workbench.experiment.recipe.current_classes import current_class
from workbench.experiment.state.user_code import is_user_module
from workbench.records import NewerModel

_Key = tuple[str, str]
"""Module and qualified name of a class: what stays the same when it is redefined."""


class Found(NamedTuple):
    """A newer model that can be swapped in."""

    note: NewerModel
    model: nn.Module | type[nn.Module] | None
    """A class is called without an argument; None if the user has to say how to build it."""


class Origin:
    """How a model was built, and what the notebook calls it."""

    def __init__(self, model: nn.Module) -> None:
        self._built_by: dict[_Key, object] = {}
        for module in model.modules():
            cls = type(module)
            if _key(cls) not in self._built_by and is_user_module(cls.__module__):
                self._built_by[_key(cls)] = _building(cls)
        self._names: frozenset[str] = frozenset()
        self.has_failed = False
        """Whether a step of this model has failed."""

    def note_failure(self, model: nn.Module) -> None:
        """Record that a step has failed, and which names ``model`` has, to look them up later."""
        self.has_failed = True
        self._names = frozenset(name for name, one in _named() if one is model)

    def newer(self, model: nn.Module) -> Found | None:
        """Return what to swap in for ``model``; None while its code would still build the same."""
        named = dict(_named())
        for name in sorted(self._names):
            other = named.get(name)
            if other is not None and other is not model:
                return _existing(f"{name} is another {type(other).__name__} now", name, other)
        changed = self._changed(model)
        if not changed:
            return None
        newer = current_class(type(model)) or type(model)
        why = f"{', '.join(changed)} would build it differently now"
        made = [(name, one) for name, one in named.items() if type(one) is newer is not type(model)]
        if len({id(one) for _name, one in made}) == 1:
            return _existing(why, *made[0])
        name = type(model).__name__
        if current_class(newer) is not None and _needs_nothing(newer):
            return Found(NewerModel(text=_text(why), code=f"exp.model = {name}()"), newer)
        return Found(
            NewerModel(text=f"{_text(why)} Swap in a new one: exp.model = {name}(...)"), None
        )

    def _changed(self, model: nn.Module) -> list[str]:
        """Names of the classes of ``model`` that would build it differently now."""
        found: dict[str, None] = {}
        for cls in dict.fromkeys(map(type, model.modules())):
            before = self._built_by.get(_key(cls))
            if before is not None and _building(current_class(cls) or cls) != before:
                found[cls.__name__] = None
        return list(found)


def redefined(model: nn.Module) -> list[str]:
    """Names of classes of ``model`` that the user's code has redefined with another content."""
    found: dict[str, None] = {}
    for cls in dict.fromkeys(map(type, model.modules())):
        now = current_class(cls)
        if now is not None and now is not cls and _written(now) != _written(cls):
            found[cls.__name__] = None
    return list(found)


def _written(cls: type) -> dict[str, object]:
    """What a class's own body contains, except for what differs with every definition."""
    return {
        name: _content(value)
        for name, value in vars(cls).items()
        if not (name.startswith("__") and name.endswith("__")) or isinstance(value, FunctionType)
    }


def _existing(why: str, name: str, model: nn.Module) -> Found:
    return Found(NewerModel(text=_text(why), code=f"exp.model = {name}"), model)


def _text(why: str) -> str:
    return f"The model that failed is the old one: {why}."


def _named() -> Iterator[tuple[str, nn.Module]]:
    """Models that have a name in the notebook or the script."""
    for name, one in list(vars(sys.modules["__main__"]).items()):
        if isinstance(one, nn.Module) and not name.startswith("_"):
            yield name, one


def _key(cls: type) -> _Key:
    return cls.__module__, cls.__qualname__


def _needs_nothing(cls: type) -> bool:
    try:
        inspect.signature(cls).bind()
    except (TypeError, ValueError):
        return False
    return True


def _building(cls: type) -> object:
    """What building an instance depends on, for comparison: `__init__` and what it calls."""
    found: dict[str, object] = {}
    wanted, own = ["__init__"], [one for one in cls.__mro__ if is_user_module(one.__module__)]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        values = [vars(one)[name] for one in own if name in vars(one)]
        found[name] = [_content(value) for value in values]
        for value in values:
            code = getattr(_function(value), "__code__", None)
            wanted += _names_in(code) if isinstance(code, CodeType) else []
    return found


def _function(value: Any) -> Any:
    return getattr(value, "__func__", value)  # of a static method or a class method


def _content(value: Any) -> object:
    """Code and defaults of a function; of other attributes of a class, those with plain values."""
    function = _function(value)
    if isinstance(function, FunctionType):
        defaults = function.__defaults__, function.__kwdefaults__
        return _same_code(function.__code__), repr(defaults)
    return repr(value) if isinstance(value, (int, float, str, bool, tuple, list, dict)) else None


def _same_code(code: CodeType) -> object:
    """Code without its position in the file, which changes with the lines above it."""
    constants = [
        _same_code(one) if isinstance(one, CodeType) else (type(one), repr(one))
        for one in code.co_consts
    ]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def _names_in(code: CodeType) -> list[str]:
    names = list(code.co_names)
    for one in code.co_consts:
        names += _names_in(one) if isinstance(one, CodeType) else []
    return names
