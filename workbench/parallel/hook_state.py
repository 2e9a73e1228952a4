"""What hooks keep, brought home: a moving average, a list, a counter, a second model's optimizer.

A hook is a function, and what it writes is wherever its code reaches: variables around it, globals
of the notebook that it names, the object whose method it is, and all that those hold. On ranks
these are copies. So before a training leaves, everything that its hooks reach is listed; the list
travels with it, so that a rank has the copies in the same order; and with a checkpoint rank 0 says
what is in each of them now, which is put into the very objects that a person has here.

What belongs to the training itself (model, optimizer, loss, data) is known by its place and comes
home by other ways. Code that is imported by name is another process's own there, as are its
module's variables: what such code keeps in a global stays on the ranks.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import logging
import sys
import types
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn
from torch.utils._device import DeviceContext
from torch.utils.hooks import RemovableHandle

from workbench.parallel import attachments
from workbench.parallel.object_change import Change, fill, generator_state

if TYPE_CHECKING:
    from workbench.experiment.thread_state import ThreadState
    from workbench.experiment.training import Training
    from workbench.modes.layout import Layout

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
_CONTAINERS = (dict, list, set, deque)
_MISSING = object()


def hooks_of(training: Training, thread: ThreadState) -> Iterator[tuple[str, Any]]:
    """Every hook of a person's that a step calls, and what its steps run under; with words for it.

    Args:
        training: whose model, loss and optimizer have hooks.
        thread: what was set for the thread that asked for the steps.
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
    """The hooks on the modules of ``model``."""
    for name, module in model.named_modules():
        hooks = {one: vars(module).get(one) or {} for one in _OF_MODULES}
        yield from _named(f"on {name or 'the model'}", hooks)


def _named(where: str, found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for hooks in found.values():
        for hook in hooks.values() if isinstance(hooks, dict) else ():
            if not attachments.is_ours(hook):
                yield f"the hook {getattr(hook, '__name__', type(hook).__name__)} {where}", hook


class HookState:
    """The objects that the hooks of a training reach, here or as their copies on a rank.

    Args:
        known: what belongs to the training, which is nobody's to bring home.
        objects: what the hooks reach beside it, in the same order in each process.
        names: by which way each was reached.
    """

    def __init__(self, known: list[Any], objects: list[Any], names: list[str]) -> None:
        self.known, self.objects, self.names = known, objects, names
        self._begun = [_Contents(one) for one in objects]

    @classmethod
    def of(cls, training: Training, thread: ThreadState, can: Callable[[Any], bool]) -> HookState:
        """That of a training which is to leave.

        Args:
            training: whose hooks are looked at.
            thread: what was set for the thread that asked for its steps.
            can: whether something can be pickled. An object that is pickled by its name, as a
                logger is, may hold what cannot, and which stays where it is.
        """
        known = list(_known(training))
        walk = _Walk(known)
        for path, hook in hooks_of(training, thread):
            walk.follow(path, hook)
        found = list(zip(walk.objects, walk.names, strict=True))
        if found and not can(walk.objects):
            found = [(one, name) for one, name in found if can(one)]
        return cls(known, [one for one, _ in found], [name for _, name in found])

    def __reduce__(self) -> Any:
        """Pickled with the training: the copies are listed in this order there."""
        return HookState, (self.known, self.objects, self.names)

    @property
    def references(self) -> list[Any]:
        """All objects that both sides know by their number."""
        return [*self.known, *self.objects]

    def aliases(self) -> Iterator[tuple[str, str]]:
        """Tensors that share the memory of a parameter or a buffer: (way to it, whose it is).

        A copy would share it no more.
        """
        model = cast("nn.Module", self.known[0])
        memory = {
            tensor.untyped_storage().data_ptr(): name
            for name, tensor in (*model.named_parameters(), *model.named_buffers())
            if tensor.layout is torch.strided and tensor.numel()
        }
        for path, one in zip(self.names, self.objects, strict=True):
            if isinstance(one, torch.Tensor) and one.layout is torch.strided and one.numel():
                whose = memory.get(one.untyped_storage().data_ptr())
                if whose is not None:
                    yield path, whose

    def changes(self) -> list[tuple[int, Any]]:
        """(number, what is in it now) of the objects that are not as when they came."""
        found = [
            _Contents(one).since(begun)
            for one, begun in zip(self.objects, self._begun, strict=True)
        ]
        return [(number, change) for number, change in enumerate(found) if change is not None]

    def take(self, changes: list[tuple[int, Any]]) -> None:
        """Put into the objects here what `changes` found in their copies."""
        for number, change in changes:
            fill(self.objects[number], change)


def _known(training: Training) -> Iterator[Any]:
    """What belongs to the training, in the same order in each process."""
    yield from (training.model, training.optimizer, training.schedule, training.loss)
    yield from training.model.modules()
    yield from training.model.parameters()
    yield from training.model.buffers()
    if training.loss.module is not None:
        yield from training.loss.module.modules()
    if training.object_state is not None:
        yield from training.object_state.objects
    beside = (training.schedule.scheduler, training.cursor.source, training.val)
    yield from (one for one in beside if one is not None)
    for source in (training.cursor.source, training.val):
        for name in ("loader", "dataset"):
            if (found := getattr(source, name, None)) is not None:
                yield found


class _Walk:
    """Finds what hooks reach."""

    def __init__(self, known: list[Any]) -> None:
        self.objects: list[Any] = []
        self.names: list[str] = []
        self._seen: dict[int, Any] = {id(one): one for one in known}

    def follow(self, path: str, value: Any) -> None:
        """Add what ``value`` reaches and nothing before it did."""
        waiting = deque([(path, value)])
        while waiting:
            at, one = waiting.popleft()
            if isinstance(one, _NOTHING_INSIDE) or id(one) in self._seen:
                continue
            self._seen[id(one)] = one
            if _is_kept(one):
                self.objects.append(one)
                self.names.append(at)
            waiting.extend(_inside(at, one))


def _is_kept(value: Any) -> bool:
    """Whether it has contents that may change."""
    if isinstance(value, types.FunctionType):
        return _is_by_value(value)
    if isinstance(value, (tuple, frozenset, functools.partial, *_METHODS)):
        return False
    if isinstance(value, (torch.Tensor, *_CONTAINERS, np.ndarray)):
        return True
    return generator_state(value) is not None or isinstance(getattr(value, "__dict__", None), dict)


def _inside(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    """What can be reached from it, and the way there."""
    if isinstance(value, types.FunctionType):
        return _reached_by_code(path, value) if _is_by_value(value) else ()
    if isinstance(value, _METHODS):  # `heard.append` is one
        owner = getattr(value, "__self__", None)
        return (path, owner), (path, getattr(value, "__func__", None))
    if isinstance(value, functools.partial):
        return (path, value.func), (path, value.args), (path, value.keywords)
    own = [(f"{name} of {path}", one) for name, one in _own(value).items()]
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        return [*((path, one) for one in (*items.keys(), *items.values())), *own]
    if isinstance(value, (list, set, deque, tuple, frozenset)):
        return [*((path, one) for one in cast("Iterable[Any]", value)), *own]
    return own


def _own(value: Any) -> dict[str, Any]:
    """Attributes of an object, those in slots too."""
    found = getattr(value, "__dict__", None)
    own = dict(cast("dict[str, Any]", found)) if isinstance(found, dict) else {}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(AttributeError):
                own.setdefault(name, getattr(value, name))
    return {name: one for name, one in own.items() if name not in ("__weakref__", "__dict__")}


def _is_by_value(function: types.FunctionType) -> bool:
    """Whether a rank has a copy of it: it is of a cell, or made inside of another function."""
    module = sys.modules.get(function.__module__ or "")
    if module is None or function.__module__ == "__main__":
        return True
    found: Any = module
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not function


def _reached_by_code(path: str, function: types.FunctionType) -> list[tuple[str, Any]]:
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    named = [(f"{name} of {path}", one) for (_, name), one in _bindings(function).items()]
    return [*named, *((path, one) for one in (*defaults, *vars(function).values()))]


def _bindings(function: types.FunctionType) -> dict[tuple[str, str], Any]:
    """What variables around a function and globals that it names are bound to."""
    found: dict[tuple[str, str], Any] = {}
    closure = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, closure, strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            found["variable", name] = cell.cell_contents
    for name in _names(function.__code__):
        if name in function.__globals__:
            found["global", name] = function.__globals__[name]
    return found


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner)


class _Contents:
    """What is in an object at this moment."""

    def __init__(self, value: Any) -> None:
        self._own: dict[Any, Any] = {}
        self._inside: list[Any] | None = None
        self._whole: Any = None
        self._mark: int | None = None
        """Of values that can be compared with those of before: a mask, or the data, may be large
        and never change."""
        if isinstance(value, (torch.Tensor, np.ndarray)):
            self._whole, self._mark = _Values(value), _checksum(value)
        elif isinstance(value, types.FunctionType):
            self._own = _bindings(value)
        elif (state := generator_state(value)) is not None:
            self._whole = state
        else:
            self._own = _own(value)
            if isinstance(value, dict):
                self._inside = list(cast("dict[Any, Any]", value).items())
            elif isinstance(value, (list, set, deque)):
                self._inside = list(cast("Iterable[Any]", value))

    def since(self, before: _Contents) -> Change | None:
        """What has changed; None where nothing has."""
        was = before._own
        own = {name: one for name, one in self._own.items() if was.get(name, _MISSING) is not one}
        gone = [name for name in was if name not in self._own]
        inside = None if _are_same(self._inside, before._inside) else self._inside
        whole = self._whole
        if self._mark is not None and self._mark == before._mark:
            whole = None
        if own or gone or inside is not None or whole is not None:
            return Change(own, gone, inside, whole)
        return None


def _checksum(values: Any) -> int | None:
    """Of the bytes of a tensor or an array in the host's memory; None: they cannot be compared."""
    array: Any = values
    if isinstance(values, torch.Tensor):
        if values.device.type != "cpu" or values.layout is not torch.strided or values.is_quantized:
            return None
        plain = values.detach().resolve_conj().resolve_neg().contiguous()
        try:
            array = plain.reshape(-1).view(torch.uint8).numpy()
        except (RuntimeError, TypeError):  # of a class of its own
            return None
    elif array.dtype.hasobject:
        return None
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)


def _are_same(one: list[Any] | None, other: list[Any] | None) -> bool:
    """Whether they have the very same elements."""
    if one is None or other is None or len(one) != len(other):
        return one is other
    return all(
        a is b or (isinstance(a, tuple) and isinstance(b, tuple) and [*map(id, a)] == [*map(id, b)])
        for a, b in zip(one, other, strict=True)
    )


class _Values:
    """The values of a tensor or an array, and not the one that both sides know by its number."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __reduce__(self) -> Any:
        if isinstance(self._of, torch.Tensor):
            return _values, (self._of.detach().cpu().clone(),)
        return _values, (self._of.copy(),)


def _values(found: Any) -> Any:
    return found


# -- what is said of hooks ------------------------------------------------------------------


def notes_on_hooks(training: Training, layout: Layout) -> Iterator[str]:
    """What a person should know of hooks before steps are taken by ranks."""
    hooks = [path for path, hook in module_hooks(training.model) if not _is_of_torch(hook)]
    paths = list(dict.fromkeys(hooks))
    if paths:
        more = f" and {len(paths) - 2:,} more" if len(paths) > 2 else ""
        yield (
            f"under {layout} {' and '.join(paths[:2])}{more} see{'s' if len(paths) == 1 else ''} "
            "the rows of one rank's part of a batch; what hooks keep comes home from rank 0"
        )
    modes = (*training.asked_from.function_modes, *training.asked_from.dispatch_modes)
    for mode in modes:
        if not isinstance(mode, DeviceContext) and not attachments.is_ours(mode):
            yield (
                f"{type(mode).__name__}, which is on where the run was started, sees each rank's "
                "part of a batch; what it keeps comes home from rank 0"
            )
    for path, hook in hooks_of(training, training.asked_from):
        if (kept := _kept_in_a_module(hook)) is not None:
            yield (
                f"{path} keeps {kept} in {hook.__module__}, which each rank imports for itself: "
                f"what changes in it under {layout} stays on the ranks"
            )


def _is_of_torch(hook: Any) -> bool:
    """Whether torch has registered it itself, as ``weight_norm`` does."""
    return str(getattr(hook, "__module__", "")).startswith("torch.")


def _kept_in_a_module(hook: Any) -> str | None:
    """A variable of an imported module that the hook changes, maybe."""
    function: Any = getattr(hook, "__func__", hook)
    if not isinstance(function, types.FunctionType) or _is_by_value(function):
        return None
    if function.__module__.partition(".")[0] in ("torch", "workbench"):
        return None
    stored = {one.argval for one in dis.get_instructions(function) if one.opname == "STORE_GLOBAL"}
    for (kind, name), value in _bindings(function).items():
        if kind == "global" and (name in stored or isinstance(value, _CHANGEABLE)):
            return name
    return None


_CHANGEABLE = (torch.Tensor, nn.Module, np.ndarray, *_CONTAINERS)
