"""Contents of an object and of all that it holds, to be restored into the same objects.

An optimizer keeps its moments in ``state``, and may keep anything elsewhere: a count of its steps,
slow weights, another optimizer that it wraps, with settings that both share. So everything that can
be reached from it is followed: containers and attributes get their former contents, in place, and
tensors are listed for the caller, which copies their values.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from workbench.experiment.state.module_state import NOT_ITS_OWN
from workbench.experiment.state.random_generators import is_generator, set_state, state_of
from workbench.modes.core.containers import CONTAINERS, contents_of, refill, values_of

_PLAIN = (
    bool, int, float, complex, str, bytes, range, slice, type(None), torch.dtype, torch.device,
    torch.layout, torch.memory_format, np.generic, np.dtype, enum.Enum,
)  # fmt: skip
"""Values that never change."""
_CODE = (
    type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
    types.MethodWrapperType, functools.partial,
)  # fmt: skip
"""Types without state that a step would change."""


class ObjectCopy:
    """The contents of some objects, and of what they hold.

    Args:
        objects: objects by name.
        opaque: objects that stay as they are.
    """

    def __init__(self, objects: dict[str, Any], opaque: Iterable[Any] = ()) -> None:
        self.tensors: dict[int, torch.Tensor] = {}
        """Every tensor that was found; their values are not copied here."""
        self.unknown: list[str] = []
        """Paths to objects that cannot be copied, since their kind is not known."""
        self._put_back: list[Callable[[], object]] = []
        for path, value in walk(objects, opaque):
            self._take(value, path)

    def restore(self) -> None:
        """Give every container and every object its former contents."""
        for put_back in self._put_back:
            put_back()

    # -- inside -----------------------------------------------------------------------------

    def _take(self, value: Any, path: str) -> None:
        if isinstance(value, torch.Tensor):
            self.tensors[id(value)] = value
        elif isinstance(value, nn.Module):
            for tensor in chain(value.parameters(), value.buffers()):
                self.tensors[id(tensor)] = tensor
        elif isinstance(value, CONTAINERS):
            self._keep(value)
        elif isinstance(value, (tuple, frozenset)):
            return
        elif (put_back := _of_known_kind(value)) is not None:
            self._put_back.append(put_back)
        elif isinstance(getattr(value, "__dict__", None), dict):
            self._keep(vars(value))
        else:
            self.unknown.append(path)

    def _keep(self, container: Any) -> None:
        contents = contents_of(container)
        self._put_back.append(lambda: refill(container, contents))


def walk(
    objects: dict[str, Any], opaque: Iterable[Any] = (), *, modules: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield everything that can be reached from some objects and may change, once, with its path.

    Containers, tensors and objects come before what they hold; values that never change and code
    are left out.

    Args:
        objects: objects by name.
        opaque: objects that are left out, and not followed.
        modules: whether modules are followed, as well as bound methods and partial functions.
    """
    seen: dict[int, Any] = {id(one): one for one in opaque}
    waiting = deque(objects.items())
    while waiting:
        path, value = waiting.popleft()
        is_call = isinstance(value, (types.MethodType, functools.partial)) and modules
        if isinstance(value, (*_PLAIN, *_CODE)) and not is_call:
            continue
        if id(value) in seen:
            continue
        seen[id(value)] = value  # kept alive: another object must not get its id
        if not is_call:
            yield path, value
        waiting.extend(_inside(path, value, modules))


def never_changes(value: Any) -> bool:
    """Return whether ``value`` is one that never changes, or code."""
    return isinstance(value, (*_PLAIN, *_CODE))


def _inside(path: str, value: Any, modules: bool) -> list[tuple[str, Any]]:
    """Return what ``value`` holds, with the path to it."""
    if isinstance(value, types.MethodType):
        return [(path, value.__self__)]
    if isinstance(value, functools.partial):
        part = cast("functools.partial[Any]", value)
        return [(path, part.func), (path, part.args), (path, part.keywords)]
    if isinstance(value, torch.Tensor) or (isinstance(value, nn.Module) and not modules):
        return []
    found: list[tuple[str, Any]] = []
    if isinstance(value, nn.Module):
        tensors = {**vars(value)["_parameters"], **vars(value)["_buffers"]}
        children = [*value.named_children(), *tensors.items()]
        found += ((f"{path}.{name}", one) for name, one in children)
    elif isinstance(value, dict):
        for key, one in contents_of(value):
            at = f"{path}[{key!r}]" if isinstance(key, (str, int)) else path
            found += ((path, key), (at, one))
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        found += ((path, one) for one in values_of(value))
    elif _of_known_kind(value) is not None:
        return []
    found += ((f"{path}.{name}", one) for name, one in attributes(value).items())
    return found


def attributes(value: Any) -> dict[str, Any]:
    """Return what an object holds by name, in slots too; of a module, without torch's own."""
    own = every_attribute(value)
    if isinstance(value, nn.Module):
        return {name: one for name, one in own.items() if name not in NOT_ITS_OWN}
    return own


def every_attribute(value: Any) -> dict[str, Any]:
    """Return what an object holds by name, in slots too."""
    found = getattr(value, "__dict__", None)
    own = dict(cast("dict[str, Any]", found)) if isinstance(found, dict) else {}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in own and name not in ("__dict__", "__weakref__"):
                with contextlib.suppress(AttributeError):  # it has none yet
                    own[name] = getattr(value, name)
    return own


def _of_known_kind(value: Any) -> Callable[[], object] | None:
    """Return what restores ``value`` if its state is neither in attributes nor in containers."""
    if isinstance(value, np.ndarray):
        return functools.partial(np.copyto, cast("Any", value), cast("Any", value).copy())
    if is_generator(value):
        return functools.partial(set_state, value, state_of(value))
    return None
