"""Pickle torch's objects that no pickler accepts, by how to find them in another process.

Pickle finds functions and classes by name, and cloudpickle plain modules. Torch has more objects
that exist once per process: modules of a class of their own (``torch.backends.cudnn``,
``torch._dynamo.config``, ``torch.ops``), operators (``torch.ops.aten.mul.Tensor``), classes made in
C++ under another name (`torch.nn.attention.SDPBackend`). A cell may name any of them, and each is
found in the other process by the name that it has here. What a cell made with a decorator of
torch's or of `functools` (``torch.library.custom_op``, ``torch.compile``, ``lru_cache``) exists in
no other process: the function inside is sent, and the decorator is applied to it again.
"""

# Torch has no public names for these.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, cast

import torch

from workbench.torch_private.compiler import is_inductor, is_named_backend
from workbench.torch_private.operators import (
    MODULES,
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    custom_ops,
)
from workbench.torch_private.settings import SubConfigProxy

_PYBIND = "pybind11_type"
_CACHED = type(functools.lru_cache(lambda: None))


def reduced(obj: Any) -> tuple[Any, ...] | None:
    """Return how to find ``obj`` in another process, as ``__reduce__`` does; None: pickle can."""
    if isinstance(obj, types.ModuleType):
        return _module(obj)
    if isinstance(obj, (OpOverload, OpOverloadPacket, HigherOrderOperator)):
        return _operator(obj)
    if isinstance(obj, SubConfigProxy):
        return _setting_group, (obj._config, obj._prefix.rstrip("."))
    if isinstance(obj, (torch.finfo, torch.iinfo)):
        return type(obj), (getattr(torch, obj.dtype),)
    if isinstance(obj, type):
        return _found(obj, obj.__name__) if type(obj).__name__ == _PYBIND else None
    if type(type(obj)).__name__ == _PYBIND:
        return _enumerated(obj)
    return _decorated(obj)


def operators_of_cells() -> list[Any]:
    """Return operators that no module defines: those of ``torch.library.custom_op`` in a cell.

    Code finds them by ``torch.ops.<namespace>.<name>``, which no pickler sees.
    """
    defined = cast("Iterable[Any]", custom_ops.OPDEFS.values())
    return [one for one in list(defined) if _is_of_a_cell(one._init_fn)]


def _is_of_a_cell(function: Any) -> bool:
    module = getattr(function, "__module__", None)
    return module == "__main__" or module not in sys.modules


# -- what is found again --------------------------------------------------------------------


def _module(module: types.ModuleType) -> tuple[Any, ...] | None:
    """Find a module of a class of its own; a plain one is known to cloudpickle."""
    if type(module) is types.ModuleType or _reduces_itself(module):
        return None
    name = str(module.__name__)
    if sys.modules.get(name) is module:
        return importlib.import_module, (name,)
    parent, _, attribute = name.rpartition(".")
    if parent in sys.modules and getattr(sys.modules[parent], attribute, None) is module:
        return _attribute, (parent, attribute)
    for other, one in tuple(sys.modules.items()):
        if one is module:
            return importlib.import_module, (other,)
    if type(module).__module__ in MODULES:
        # "torch.ops.mine", and "torch.classes" has no dot before what follows
        for root in (torch.ops, torch.classes):
            for attribute, one in tuple(vars(root).items()):
                if one is module:
                    return getattr, (root, attribute)
    return None


def _reduces_itself(obj: Any) -> bool:
    return any(
        "__reduce__" in vars(cls) or "__reduce_ex__" in vars(cls)
        for cls in type(obj).__mro__
        if cls not in (object, types.ModuleType)
    )


def _operator(operator: Any) -> tuple[Any, ...] | None:
    """Find an operator with or without the name of its overload, or one that takes functions."""
    if isinstance(operator, HigherOrderOperator):
        name = operator.__name__
        here = getattr(torch.ops.higher_order, name, None)
        return (getattr, (torch.ops.higher_order, name)) if here is operator else None
    if isinstance(operator, OpOverload):
        return getattr, (operator.overloadpacket, operator._overloadname)
    namespace, _, name = operator._qualified_op_name.partition("::")
    return _operator_named, (namespace, name)


def _operator_named(namespace: str, name: str) -> Any:
    return getattr(getattr(torch.ops, namespace), name)


def _attribute(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _setting_group(config: Any, name: str) -> Any:
    """``config.triton``, whose settings are named ``triton.<name>``."""
    return functools.reduce(getattr, name.split("."), config)


def _found(cls: type, name: str) -> tuple[Any, ...] | None:
    """Find a class that torch made in C++ and has under another name than its own."""
    declared = sys.modules.get(cls.__module__)
    if getattr(declared, cls.__qualname__, None) is cls:
        return None
    for module in (declared, *tuple(sys.modules.values())):
        if isinstance(module, types.ModuleType) and vars(module).get(name) is cls:
            return _attribute, (module.__name__, name)
    return None


def _enumerated(obj: Any) -> tuple[Any, ...] | None:
    """A member of an enumeration made in C++."""
    if isinstance(obj, Enum) or not hasattr(type(obj), "__members__"):
        return None
    return type(obj), (int(obj),)


# -- what is made again ---------------------------------------------------------------------


def _decorated(obj: Any) -> tuple[Any, ...] | None:
    """Recreate what a decorator made of a function of a cell."""
    if isinstance(obj, custom_ops.CustomOpDef):
        return _defined(obj)
    if isinstance(obj, functools.cached_property) and "lock" in vars(obj):
        return _property_again, (obj.func, obj.attrname)
    if type(obj) is _CACHED:
        return _cached(obj)
    if isinstance(obj, types.FunctionType):
        return _compiled(obj)
    return None


def _cached(function: Any) -> tuple[Any, ...] | None:
    """A function of a cell under ``lru_cache``, without its results; others are found by name."""
    if not _is_of_a_cell(function):
        return None
    parameters = function.cache_parameters()
    return _cached_again, (function.__wrapped__, parameters["maxsize"], parameters["typed"])


def _cached_again(function: Any, size: int | None, typed: bool) -> Any:
    return functools.lru_cache(size, typed)(function)


def _property_again(function: Any, name: str | None) -> Any:
    made = functools.cached_property(function)
    made.attrname = name
    return made


def _compiled(function: Any) -> tuple[Any, ...] | None:
    """A function of a cell under ``torch.compile``, which is compiled again where it is called."""
    inside = vars(function).get("_torchdynamo_orig_callable")
    if inside is None or not _is_of_a_cell(function):
        return None
    context: Any = inspect.getclosurevars(function).nonlocals.get("self")
    backend: Any = getattr(context, "callback", None)
    if backend is None:  # torch.compiler.disable
        return None
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    given: dict[str, Any] = {"fullgraph": context.fullgraph, "dynamic": context._dynamic}
    if is_inductor(backend):
        given["options"] = dict(backend.config) or None
    elif is_named_backend(backend):
        given["backend"] = backend.compiler_fn
        given["options"] = backend.kwargs.get("options")
    else:
        return None
    return _compiled_again, (inside, given)


def _compiled_again(function: Any, given: dict[str, Any]) -> Any:
    return torch.compile(function, **given)


def _defined(operator: Any) -> tuple[Any, ...]:
    """An operator of ``torch.library.custom_op``, with what was registered for it."""
    kernels = {kind: _kernel(function) for kind, function in operator._backend_fns.items()}
    state = {
        "fake": operator._abstract_fn,
        "backward": operator._backward_fn,
        "setup_context": operator._setup_context_fn,
        "vmap": operator._vmap_fn,
        "autocast": dict(operator._autocast_dtype),
    }
    name = operator._namespace, operator._name
    made = operator._schema, operator._init_fn, tuple(operator._tags)
    return _define, (name, made, kernels), state, None, None, _register


def _kernel(function: Callable[..., Any]) -> Any:
    """Return what the user registered, from what torch made of it."""
    inside = inspect.getclosurevars(inspect.unwrap(function)).nonlocals
    return inside.get("fn", function)


def _define(name: tuple[str, str], made: tuple[Any, ...], kernels: dict[Any, Any]) -> Any:
    known: Any = custom_ops.OPDEFS.get("::".join(name))
    if known is not None:  # a cell has defined it, or it came with another part
        return known
    operator: Any = custom_ops.CustomOpDef(*name, *made)
    for kind, kernel in kernels.items():
        operator.register_kernel(kind)(kernel)
    _kept.append(operator)
    return operator


def _register(operator: Any, state: dict[str, Any]) -> None:
    if state["fake"] is not None:
        operator.register_fake(state["fake"])
    if state["backward"] is not None:
        operator.register_autograd(state["backward"], setup_context=state["setup_context"])
    if state["vmap"] is not None:
        operator.register_vmap(state["vmap"])
    for kind, dtype in state["autocast"].items():
        operator.register_autocast(kind, dtype)


_kept: list[Any] = []
"""Torch keeps operators that no code names only as long as something holds them."""
