"""Objects that hooks can reach: closed-over variables, globals that they name, and their contents.

A hook is a function, and what it keeps (a moving average, a list, a counter, a second model's
optimizer) is wherever its code can reach. This module lists it for code that restores it after a
trial step (`workbench.experiment.state.hook_copy`), or that returns it from another process
(`workbench.parallel.transfer.hook_state`). What belongs to the training itself (model, optimizer,
loss, data) is identified by its place, and is not followed; code that is imported by name, and the
variables of its module, are another process's own there.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import logging
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from workbench.experiment.state import attachments
from workbench.experiment.state.object_change import generator_state
from workbench.experiment.state.object_copy import every_attribute
from workbench.experiment.state.user_code import may_be_user_module
from workbench.modes.core.containers import CONTAINERS
from workbench.torch_private.contexts import DeviceContext

if TYPE_CHECKING:
    from workbench.experiment.state.thread_state import ThreadState
    from workbench.experiment.training import Training

_OF_MODULES = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_NOTHING_INSIDE = (
    bool, int, float, complex, str, bytes, range, slice, type(None), type, torch.dtype,
    torch.device, torch.layout, torch.memory_format, np.generic, np.dtype, types.ModuleType,
    types.CodeType, logging.Logger, RemovableHandle,
)  # fmt: skip
_METHODS = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
_TRANSPARENT = (
    *CONTAINERS, *_METHODS, tuple, frozenset, functools.partial, torch.Tensor, np.ndarray,
    types.SimpleNamespace, nn.Module, torch.optim.Optimizer,
)  # fmt: skip
_OF_NO_LIBRARY = ("builtins", "abc", "typing", "collections.abc")
"""Modules in which a class may have its bases and still be the user's own."""


def hooks_of(training: Training, thread: ThreadState) -> Iterator[tuple[str, Any]]:
    """Yield each user hook that a step calls, and what its steps run under, with a description.

    Args:
        training: training whose model, loss and optimizer have hooks.
        thread: what was set for the thread that requested the steps.
    """
    for name, parameter in training.model.named_parameters():
        yield from _named(f"on {name}", attachments.attached_to(parameter, with_attributes=False))
    found = attachments.attached_to(training.optimizer, with_attributes=False)
    yield from _named("on the optimizer", found)
    yield from module_hooks(training.model)
    if training.loss.module is not None:
        yield from module_hooks(training.loss.module)
    yield from _named("of all modules or optimizers", attachments.hooks_of_all())
    modes = (*thread.function_modes, *thread.dispatch_modes, *(thread.saved_tensors_hooks or ()))
    yield from (("around the run", one) for one in modes if not isinstance(one, DeviceContext))


def module_hooks(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the hooks on the modules of ``model``."""
    for name, module in model.named_modules():
        hooks = {one: vars(module).get(one) or {} for one in _OF_MODULES}
        yield from _named(f"on {name or 'the model'}", hooks)


def _named(where: str, found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for hooks in found.values():
        for hook in hooks.values() if isinstance(hooks, dict) else ():
            if not attachments.is_ours(hook):
                yield f"the hook {getattr(hook, '__name__', type(hook).__name__)} {where}", hook


def known_of(training: Training) -> Iterator[Any]:
    """Yield what belongs to the training, in the same order in each process."""
    yield from (training.model, training.optimizer, training.schedule, training.loss)
    yield from training.model.modules()
    yield from training.model.parameters()
    yield from training.model.buffers()
    if training.loss.module is not None:
        yield from training.loss.module.modules()
    if training.object_state is not None:
        yield from training.object_state.objects
    extra = (training.schedule.scheduler, training.cursor.source, training.val)
    yield from (one for one in extra if one is not None)
    for source in (training.cursor.source, training.val):
        for name in ("loader", "dataset"):
            if (found := getattr(source, name, None)) is not None:
                yield found


class Reached(NamedTuple):
    """An object that hooks can reach, and which may change."""

    path: str
    """How it is reached: ``total of the hook count on head``."""
    value: Any


def reached(
    training: Training, thread: ThreadState, known: Iterable[Any], *, here: bool
) -> list[Reached]:
    """Return what the hooks of ``training`` can reach, each object once, without the known ones.

    Args:
        training: training whose hooks are inspected.
        thread: what was set for the thread that requested its steps.
        known: objects that are not followed.
        here: whether the objects may be restored in this process. Variables of the user's imported
            modules are then included; and an object of a library is not, since it may be in use (a
            writer with a thread of its own).
    """
    found: list[Reached] = []
    seen = {id(one): one for one in known}
    waiting = deque(hooks_of(training, thread))
    while waiting:
        path, value = waiting.popleft()
        if isinstance(value, _NOTHING_INSIDE) or id(value) in seen:
            continue
        seen[id(value)] = value  # kept alive: another object must not get its id
        if isinstance(value, types.FunctionType):
            if is_by_value(value) or (here and may_be_user_module(value.__module__)):
                found.append(Reached(path, value))
                waiting.extend(_reached_by_code(path, value))
            continue
        if not _is_followed(value, here=here):
            continue
        if _is_kept(value):
            found.append(Reached(path, value))
        waiting.extend(_inside(path, value))
    return found


def _is_followed(value: Any, *, here: bool) -> bool:
    """Return whether the contents of ``value`` may be the user's."""
    if type(value).__module__.startswith("workbench."):
        return False
    if not here or isinstance(value, _TRANSPARENT) or generator_state(value) is not None:
        return True
    return all(
        cls.__module__ in _OF_NO_LIBRARY or may_be_user_module(cls.__module__)
        for cls in type(value).__mro__
    )


def _is_kept(value: Any) -> bool:
    """Return whether ``value`` has contents that may change."""
    if isinstance(value, (tuple, frozenset, functools.partial, *_METHODS)):
        return False
    if isinstance(value, (torch.Tensor, *CONTAINERS, np.ndarray)):
        return True
    return generator_state(value) is not None or isinstance(getattr(value, "__dict__", None), dict)


def _inside(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    """Return what can be reached from ``value``, with the path to it."""
    if isinstance(value, _METHODS):  # `heard.append` is one
        owner = getattr(value, "__self__", None)
        return (path, owner), (path, getattr(value, "__func__", None))
    if isinstance(value, functools.partial):
        return (path, value.func), (path, value.args), (path, value.keywords)
    own = [(f"{name} of {path}", one) for name, one in every_attribute(value).items()]
    own += ((path, one) for one in _methods(type(value)))
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        return [*((path, one) for one in (*items.keys(), *items.values())), *own]
    if isinstance(value, (list, set, deque, tuple, frozenset)):
        return [*((path, one) for one in cast("Iterable[Any]", value)), *own]
    return own


def _methods(cls: type) -> Iterator[types.FunctionType]:
    """Yield methods of the user's classes: an object called as a hook may name globals in them."""
    for base in cls.__mro__:
        if base is not object and may_be_user_module(base.__module__):
            yield from (one for one in vars(base).values() if isinstance(one, types.FunctionType))


def is_by_value(function: types.FunctionType) -> bool:
    """Return whether a rank has a copy of ``function``.

    It has one of a function that was defined in a cell, or inside another function.
    """
    module = sys.modules.get(function.__module__ or "")
    if module is None or function.__module__ == "__main__":
        return True
    found: Any = module
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not function


def _reached_by_code(path: str, function: types.FunctionType) -> list[tuple[str, Any]]:
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    named = [(f"{name} of {path}", one) for (_, name), one in bindings(function).items()]
    return [*named, *((path, one) for one in (*defaults, *vars(function).values()))]


def bound_by(function: types.FunctionType) -> dict[tuple[str, str], Any]:
    """Return the values of variables and globals that the function itself binds: ``n += 1``.

    A name that it only reads is the notebook's, which may give it another value at any time.
    """
    code = function.__code__
    return {key: one for key, one in bindings(function).items() if key in _bound_in(code)}


def bindings(function: types.FunctionType) -> dict[tuple[str, str], Any]:
    """Return the values of a function's closed-over variables, and of the globals that it names."""
    found: dict[tuple[str, str], Any] = {}
    closure = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, closure, strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            found["variable", name] = cell.cell_contents
    for name in _globals_in(function.__code__):
        if name in function.__globals__:
            found["global", name] = function.__globals__[name]
    return found


@functools.lru_cache(maxsize=4096)
def _globals_in(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of globals, without those of attributes."""
    return tuple(dict.fromkeys(name for how, name in _uses(code) if how.endswith("_GLOBAL")))


@functools.lru_cache(maxsize=4096)
def _bound_in(code: types.CodeType) -> frozenset[tuple[str, str]]:
    kinds = {"STORE_GLOBAL": "global", "DELETE_GLOBAL": "global"}
    kinds |= {"STORE_DEREF": "variable", "DELETE_DEREF": "variable"}
    return frozenset((kinds[how], name) for how, name in _uses(code) if how in kinds)


def _uses(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """Yield what code does with variables: (name of the instruction, of the variable)."""
    for one in dis.get_instructions(code):
        if one.opname.endswith(("_GLOBAL", "_DEREF")):
            yield one.opname, one.argval
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _uses(inner)
