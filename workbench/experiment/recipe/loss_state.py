"""State that a user's loss keeps from call to call, as far as it can be determined.

A loss is any callable. Calling it more often than a plain loop does is harmless only if it keeps
nothing, which is known for few losses. So everything that its code can reach by name is looked up
and saved: closed-over variables, globals, defaults, attributes (private ones too), class
attributes, buffers of modules, and all of that for the functions that it calls. Values are compared
bit by bit, not by identity: a counter in a dict, a write through ``.data`` and an exchanged tensor
are all detected, and can be restored.

If something cannot be inspected (iterators, files, locks, objects of other C extensions, a compiled
function), or is written in a way that names do not show (``global``, ``nonlocal``, ``print``,
``exec``), the loss is not known to keep nothing: `LossState.unknown` says what it was. Torch, NumPy
and parts of the standard library are trusted to keep nothing but random states.
"""

from __future__ import annotations

import builtins
import dis
import functools
import operator
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from types import (
    BuiltinFunctionType,
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch

from workbench.torch_private.operators import OPERATORS
from workbench.torch_private.tensors import counted_version

_MOST_VALUES = 50_000
"""Maximum number of values that are inspected; a loss that reaches more is not known."""
_LARGE_BYTES = 16 * 2**20
"""Size above which a tensor is not copied: its bytes are summed."""
_TRUSTED = frozenset(
    {
        *("torch", "torchvision", "numpy", "builtins", "math", "cmath", "operator", "functools"),
        *("collections", "typing", "types", "enum", "abc", "dataclasses", "numbers", "warnings"),
        *("random", "copy", "einops"),
    }
)
"""Packages whose functions keep nothing that a loss depends on, except random states."""
_REFUSED = frozenset(
    {
        *("exec", "eval", "compile", "open", "input", "print", "setattr", "delattr", "globals"),
        *("locals", "vars", "__import__", "breakpoint"),
    }
)
"""Built-in functions whose effects names do not show."""
_CONSTANTS = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type(...)),
    *(type(NotImplemented), torch.dtype, torch.device, torch.layout, torch.memory_format),
    *(torch.Size, np.generic, np.dtype, np.ufunc, GenericAlias),
)
"""Types of values that never change."""
_DESCRIPTORS = (
    *(GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType),
    MethodWrapperType,
)
_CONTAINERS = (dict, OrderedDict, list, tuple, set, frozenset, deque)
_CODE = (FunctionType, staticmethod, classmethod, property, *_DESCRIPTORS)
_BY_PYTHON = frozenset({"forward", "backward", "setup_context"})
"""Methods that are called although their name is not in the code."""
_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"})
_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "LOAD_SUPER_ATTR"})
_FOR_PEOPLE = frozenset({"__repr__", "__str__", "__format__", "__init_subclass__", "__set_name__"})
_AT_CREATION = frozenset({"__init__", "__new__", "__post_init__"})


class LossState:
    """All that a loss can reach, as it was at construction."""

    def __init__(self, loss: Any) -> None:
        self.unknown = ""
        """The part of it that cannot be known, as ``name, a count``; ``""`` if all is known to the
        last bit."""
        self._seen: dict[int, tuple[str, Any]] = {}
        """Names and values by id, kept alive: no other value can have the same id meanwhile."""
        self._parts: list[_Part] = []
        self._names = set(_BY_PYTHON)
        self._methods: dict[str, list[Any]] = {}
        """Methods of classes, by names that no code has used yet."""
        self._stored: set[str] = set()
        """Attributes that code writes, of any object."""
        self._classes: set[tuple[int, bool]] = set()
        self._layouts: dict[type[Any], _Layout] = {}
        self._trusted: dict[int, Any] = {}
        """Modules and classes that are not inspected."""
        self._waiting: deque[tuple[str, Any]] = deque([("the loss", loss)])
        self._search()

    def changed(self) -> str:
        """Return the name of the first value that has changed, or ``""``."""
        return next(filter(None, (part.changed() for part in self._parts)), "")

    @torch.no_grad()
    def restore(self) -> bool:
        """Restore what has changed; return False if something cannot be restored."""
        for part in self._parts:
            if part.changed():
                part.restore()
        return not self.changed()

    def reaches(self, *values: Any) -> str:
        """Return the name by which the loss reaches one of ``values``, or ``""``."""
        found = (self._seen.get(id(value), ("", None))[0] for value in values)
        return next(filter(None, found), "")

    # -- what is reached --------------------------------------------------------------------

    def _search(self) -> None:
        while self._waiting and not self.unknown:
            name, value = self._waiting.popleft()
            if isinstance(value, _CONSTANTS) or id(value) in self._seen:
                continue
            self._seen[id(value)] = name, value
            if len(self._seen) > _MOST_VALUES:
                self._refuse(name, "more than can be inspected")
                return
            try:
                self._take(name, value)
            except Exception as error:  # noqa: BLE001 - objects of any kind may raise here
                self._refuse(name, f"raises {type(error).__name__}")
        for name in self._stored:
            for owner in self._trusted.values():
                if name in vars(owner):
                    self._refuse(name, f"an attribute written into {owner.__name__}")

    def _refuse(self, name: str, why: str = "") -> None:
        self.unknown = self.unknown or (f"{name}, {why}" if why else name)

    def _and(self, values: Iterable[tuple[str, Any]]) -> None:
        self._waiting.extend(values)

    def _keep(self, part: _Part) -> None:
        self._parts.append(part)

    def _take(self, name: str, value: Any) -> None:  # noqa: C901, PLR0912 - one kind after the other
        if isinstance(value, torch.Tensor):
            return self._tensor(name, value)
        if isinstance(value, torch.Generator):
            return self._keep(_Generator(name, value))
        if isinstance(value, np.ndarray):
            array = cast("np.ndarray[Any, Any]", value)
            if array.dtype.hasobject:
                return self._refuse(name, "an array of objects")
            return self._keep(_Array(name, array))
        if isinstance(value, ModuleType):
            return self._module(name, value)
        if isinstance(value, type):
            return self._class(name, cast("type[Any]", value), is_called=True)
        if isinstance(value, FunctionType):
            return self._function(name, value)
        if isinstance(value, functools.partial):
            part = cast("functools.partial[Any]", value)
            return self._and([(name, part.func), (name, part.args), (name, part.keywords)])
        if isinstance(value, MethodType):
            return self._and([(name, value.__self__), (name, value.__func__)])
        if isinstance(value, (BuiltinFunctionType, BuiltinMethodType)):
            return self._builtin(name, value)
        if isinstance(value, (staticmethod, classmethod)):
            return self._and([(name, cast(Any, value).__func__)])
        if isinstance(value, property):
            return self._and((name, one) for one in (value.fget, value.fset, value.fdel))
        if isinstance(value, functools.cached_property):
            return self._and([(name, cast(Any, value).func)])
        if isinstance(value, CellType):
            return self._cell(name, value)
        if isinstance(value, _DESCRIPTORS) or _root(type(value).__module__) == OPERATORS:
            return None
        if type(value).__module__ == "functools" and hasattr(value, "__wrapped__"):
            return self._and([(name, value.__wrapped__)])  # a cache of what is inspected itself
        return self._object(name, value)

    def _tensor(self, name: str, value: torch.Tensor) -> None:
        plain = type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        if not plain or value.layout != torch.strided or value.is_meta or value.is_quantized:
            return self._refuse(name, f"a {type(value).__name__}")
        is_large = value.nbytes > _LARGE_BYTES
        self._keep(_LargeTensor(name, value) if is_large else _Tensor(name, value))
        if vars(value):
            self._table(name, vars(value))
        return None

    def _table(self, name: str, table: dict[Any, Any]) -> None:
        self._keep(_Table(name, table))
        self._and((f"{name}.{key}" if isinstance(key, str) else name, table[key]) for key in table)
        self._and((name, key) for key in table)

    def _module(self, name: str, module: ModuleType) -> None:
        """Defer a user's module until code uses its names."""
        if _is_trusted(module.__name__):
            self._trusted[id(module)] = module
            return
        self._later({key: (f"{name}.{key}", one, module) for key, one in vars(module).items()})

    def _class(self, name: str, cls: type[Any], *, is_called: bool) -> None:
        if (id(cls), is_called) in self._classes:
            return
        self._classes.add((id(cls), is_called))
        for base in cls.__mro__:
            if _is_trusted(base.__module__):
                if base.__module__ != "builtins":
                    self._trusted[id(base)] = base
                continue
            self._seen[id(base)] = name, base
            self._attributes_of(name, base, is_called=is_called)
        if not _is_trusted(type(cls).__module__):
            self._refuse(name, f"a class made by {type(cls).__name__}")

    def _attributes_of(self, name: str, cls: type[Any], *, is_called: bool) -> None:
        values: dict[str, Any] = {}
        by_name: dict[str, tuple[str, Any, Any]] = {}
        left_out = _FOR_PEOPLE if is_called else _FOR_PEOPLE | _AT_CREATION
        for key, one in vars(cls).items():
            is_code = isinstance(one, _CODE)
            if key.startswith("__") and key.endswith("__"):
                if is_code and key not in left_out:
                    self._and([(f"{name}.{key}", one)])
            elif is_code:
                by_name[key] = f"{name}.{key}", one, None
            elif key != "_abc_impl":
                values[key] = one
        self._later(by_name)
        self._keep(_Attributes(name, cls, values))
        self._and((f"{name}.{key}", one) for key, one in values.items())

    def _later(self, by_name: dict[str, tuple[str, Any, Any]]) -> None:
        """Inspect these once code uses their names."""
        for key, (name, value, owner) in by_name.items():
            self._methods.setdefault(key, []).append((name, value, owner))
            if key in self._names:
                self._used(key)

    def _used(self, key: str) -> None:
        self._names.add(key)
        for name, value, owner in self._methods.pop(key, ()):
            if owner is not None:
                self._keep(_Globals(name, vars(owner), key, is_read=False))
            self._and([(name, value)])

    def _function(self, name: str, function: FunctionType) -> None:
        own = vars(function)
        compiled = own.get("_torchdynamo_orig_callable")
        if compiled is not None:  # computes the same, whatever it keeps to be fast
            return self._and([(name, compiled)])
        if own:
            self._table(name, own)
        self._and([(name, function.__defaults__), (name, function.__kwdefaults__)])
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._and(cells)
        if not _is_trusted(function.__globals__.get("__name__")):
            self._code(name, function.__code__, function)
        return None

    def _cell(self, name: str, cell: CellType) -> None:
        self._keep(part := _Cell(name, cell))
        if not part.is_empty:
            self._and([(name, cell.cell_contents)])

    def _code(self, name: str, code: CodeType, function: FunctionType) -> None:
        outer = set(function.__code__.co_freevars)
        for one in dis.get_instructions(code):
            kind, key = one.opname, one.argval
            if kind in _STORES and ("GLOBAL" in kind or key in outer):
                self._refuse(key, "a variable outside of it that it writes")
            elif kind == "IMPORT_NAME":
                self._imported(key)
            elif kind in ("LOAD_GLOBAL", "LOAD_NAME"):
                self._global(key, function)
            elif kind == "STORE_ATTR":
                self._stored.add(key)
            elif kind in _LOADS:
                self._used(key)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._code(name, inner, function)
            elif isinstance(inner, str):
                self._used(inner)  # of `getattr`, possibly

    def _imported(self, key: str) -> None:
        root = sys.modules.get(key.partition(".")[0])
        if root is None:
            self._refuse(key, "a module that it imports")
        self._and([(key, root), (key, sys.modules.get(key))])

    def _global(self, key: str, function: FunctionType) -> None:
        table = function.__globals__
        if key in table:
            self._keep(_Globals(key, table, key, is_read=True))
            self._and([(key, table[key])])
        elif key in _REFUSED:
            self._refuse(f"{key}()", "which it calls")
        elif key == "getattr":
            for name in tuple(self._methods):
                self._used(name)
            self._names = _Every()
        elif not hasattr(builtins, key):
            self._refuse(key, "not defined")

    def _builtin(self, name: str, function: Any) -> None:
        owner = function.__self__
        if owner is not None and not isinstance(owner, ModuleType):
            return self._and([(name, owner)])
        if function.__name__ in _REFUSED or not _is_trusted(function.__module__):
            return self._refuse(name, f"a function of {function.__module__}")
        return None

    def _object(self, name: str, value: Any) -> None:
        """Inspect a container, or an object of a class that is written in Python."""
        kind = type(value)
        if isinstance(value, dict):
            self._table(name, cast("dict[Any, Any]", value))
        elif isinstance(value, (list, deque, set)):
            self._keep(_Items(name, cast("list[Any]", value)))
            self._and((name, one) for one in tuple(cast("list[Any]", value)))
        elif isinstance(value, (tuple, frozenset)):
            self._and((name, one) for one in cast("tuple[Any, ...]", value))
        elif self._layout(kind).hides_something:
            return self._refuse(name, f"a {kind.__name__}")
        own = getattr(value, "__dict__", None)
        if own:
            self._table(name, own)
        slots = () if kind in _CONTAINERS else self._layout(kind).slots
        if slots:
            found = {key: getattr(value, key) for key in slots if hasattr(value, key)}
            self._keep(_Attributes(name, value, found))
            self._and((f"{name}.{key}", one) for key, one in found.items())
        if isinstance(value, dict):
            self._and([(name, getattr(cast(Any, value), "default_factory", None))])
        self._class(name, kind, is_called=False)
        return None

    def _layout(self, kind: type[Any]) -> _Layout:
        found = self._layouts.get(kind)
        if found is None:
            found = self._layouts[kind] = _layout(kind)
        return found


# -- one value, as it was -----------------------------------------------------------------------


class _Part(Protocol):
    def changed(self) -> str: ...
    def restore(self) -> None: ...


class _Held:
    def __init__(self, name: str) -> None:
        self._name = name

    def changed(self) -> str:
        """Return the name if the value has changed, or ``""``."""
        return "" if self.is_same() else self._name.removeprefix("the loss.")

    def is_same(self) -> bool:
        raise NotImplementedError


class _Tensor(_Held):
    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        super().__init__(name)
        self._tensor, self._values = tensor, tensor.detach().clone()

    def is_same(self) -> bool:
        now, before = self._tensor.detach(), self._values
        alike = (now.shape, now.dtype, now.device) == (before.shape, before.dtype, before.device)
        return alike and torch.equal(_bits(now), _bits(before))

    def restore(self) -> None:
        now, before = self._tensor, self._values
        if now.shape == before.shape and now.dtype == before.dtype:
            now.detach().copy_(before)
        else:  # it was resized
            now.data = before.clone()


class _LargeTensor(_Held):
    """A tensor of which there is no copy to restore."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        super().__init__(name)
        self._tensor, self._mark = tensor, self._now(tensor)

    @staticmethod
    def _now(tensor: torch.Tensor) -> tuple[Any, ...]:
        flat = _bits(tensor.detach())
        return (
            tensor.shape,
            counted_version(tensor),
            int(flat.sum(dtype=torch.int64)),
            tensor.data_ptr(),
        )

    def is_same(self) -> bool:
        return self._now(self._tensor) == self._mark

    def restore(self) -> None:
        return None


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.resolve_neg().contiguous().reshape(-1).view(torch.uint8)


class _Array(_Held):
    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        super().__init__(name)
        self._array, self._values = array, array.copy()

    def is_same(self) -> bool:
        now, before = self._array, self._values
        return (now.shape, now.dtype) == (before.shape, before.dtype) and (
            now.tobytes() == before.tobytes()
        )

    def restore(self) -> None:
        np.copyto(self._array, self._values)


class _Generator(_Held):
    def __init__(self, name: str, generator: torch.Generator) -> None:
        super().__init__(name)
        self._generator, self._state = generator, generator.get_state()

    def is_same(self) -> bool:
        return torch.equal(self._generator.get_state(), self._state)

    def restore(self) -> None:
        self._generator.set_state(self._state)


class _Table(_Held):
    """A dict, or the attributes of an object."""

    def __init__(self, name: str, table: dict[Any, Any]) -> None:
        super().__init__(name)
        self._table, self._before = table, dict(table)

    def changed(self) -> str:
        now, before = self._table, self._before
        for key in {**before, **now}:
            if key not in now or key not in before or not _is_one(now[key], before[key]):
                name = f"{self._name}.{key}" if isinstance(key, str) else self._name
                return name.removeprefix("the loss.")
        return "" if [*map(id, now)] == [*map(id, before)] else self._name

    def restore(self) -> None:
        self._table.clear()
        self._table.update(self._before)


class _Globals(_Held):
    """One name of a module.

    A function does not write a global that it reads, or else it is not known: a change is another
    thread's, and is not undone.
    """

    def __init__(self, name: str, table: dict[str, Any], key: str, *, is_read: bool) -> None:
        super().__init__(name)
        self._table, self._key, self._before = table, key, table[key]
        self._is_read = is_read

    def is_same(self) -> bool:
        return self._key in self._table and _is_one(self._table[self._key], self._before)

    def restore(self) -> None:
        if not self._is_read:
            self._table[self._key] = self._before


class _Attributes(_Held):
    """Attributes of a class, or slots of an object."""

    def __init__(self, name: str, owner: Any, values: dict[str, Any]) -> None:
        super().__init__(name)
        self._owner, self._before = owner, values

    def changed(self) -> str:
        changed = (key for key, one in self._before.items() if not _is_one(self._now(key), one))
        key = next(changed, "")
        return f"{self._name}.{key}".removeprefix("the loss.") if key else ""

    def _now(self, key: str) -> Any:
        if isinstance(self._owner, type):
            return vars(self._owner).get(key, self)
        return getattr(self._owner, key, self)

    def restore(self) -> None:
        for key, one in self._before.items():
            setattr(self._owner, key, one)


class _Items(_Held):
    """A list, a deque or a set."""

    def __init__(self, name: str, items: Any) -> None:
        super().__init__(name)
        self._items, self._before = items, tuple(items)

    def is_same(self) -> bool:
        now, before = self._items, self._before
        if len(now) != len(before):
            return False
        if isinstance(now, set):
            return cast("set[Any]", now) == set(before)
        return all(map(operator.is_, now, before)) or all(map(_is_one, now, before))

    def restore(self) -> None:
        self._items.clear()
        more: Callable[[Any], None] = getattr(self._items, "extend", None) or self._items.update
        more(self._before)


class _Cell(_Held):
    """A variable that is closed over."""

    def __init__(self, name: str, cell: CellType) -> None:
        super().__init__(name)
        self._cell, self._before = cell, self._now(cell)
        self.is_empty = self._before is _Cell

    @staticmethod
    def _now(cell: CellType) -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return _Cell  # not assigned yet

    def is_same(self) -> bool:
        return _is_one(self._now(self._cell), self._before)

    def restore(self) -> None:
        if not self.is_empty:
            self._cell.cell_contents = self._before


def _is_one(now: Any, before: Any) -> bool:
    """Return whether they are one object, or constants that print the same (a nan is itself)."""
    if now is before:
        return True
    return (
        type(now) is type(before)
        and isinstance(now, (bool, int, float, complex, str, bytes))
        and repr(now) == repr(before)
    )


class _Every(set[str]):
    """Every name: code accesses attributes by strings that it makes."""

    def __contains__(self, _key: object) -> bool:
        return True


def _root(module: Any) -> str:
    return module if isinstance(module, str) else ""


def _is_trusted(module: Any) -> bool:
    return _root(module).partition(".")[0] in _TRUSTED


class _Layout(NamedTuple):
    """Where objects of a class store what they keep."""

    slots: tuple[str, ...]
    hides_something: bool
    """Whether they have more than attributes and slots: what a C extension keeps."""


def _layout(kind: type[Any]) -> _Layout:
    members = [
        (base, key)
        for base in kind.__mro__
        for key, one in vars(base).items()
        if isinstance(one, MemberDescriptorType) and key not in ("__dict__", "__weakref__")
    ]
    tables = (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    plain_bytes = object.__basicsize__ + 8 * (len(members) + tables)
    slots = tuple(key for base, key in members if not _is_trusted(base.__module__))
    return _Layout(slots, kind.__basicsize__ != plain_bytes)
