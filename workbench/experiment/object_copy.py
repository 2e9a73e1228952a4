"""What an object and those that it holds are, to be put back into the very same objects.

An optimizer keeps its moments in ``state``, and whatever it likes elsewhere: a count of its steps,
slow weights, another optimizer that it wraps, with settings that both share. So everything that can
be reached from it is followed: containers and attributes get their former contents, in place, and
tensors are listed for who copies their values.
"""

from __future__ import annotations

import functools
import random
import types
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from torch import nn

_PLAIN = (
    bool, int, float, complex, str, bytes, range, slice, type(None), torch.dtype, torch.device,
    torch.layout, torch.memory_format, np.generic, np.dtype,
)  # fmt: skip
"""Values that never change."""
_CODE = (
    type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
    types.MethodWrapperType, functools.partial,
)  # fmt: skip
"""What has no state that a step would change."""


class ObjectCopy:
    """The contents of some objects, and of what they hold.

    Args:
        objects: by name.
        opaque: objects that stay as they are.
    """

    def __init__(self, objects: dict[str, Any], opaque: Iterable[Any] = ()) -> None:
        self.tensors: dict[int, torch.Tensor] = {}
        """Every tensor that was found; their values are not copied here."""
        self.unknown: list[str] = []
        """Objects of which nobody knows how to copy them, by the way to them."""
        self._put_back: list[Callable[[], object]] = []
        self._seen: dict[int, Any] = {id(one): one for one in opaque}
        for name, one in objects.items():
            self._follow(one, name)

    def restore(self) -> None:
        """Give every container and every object its former contents."""
        for put_back in self._put_back:
            put_back()

    # -- inside -----------------------------------------------------------------------------

    def _follow(self, value: Any, path: str) -> None:
        if isinstance(value, (*_PLAIN, *_CODE)) or id(value) in self._seen:
            return
        self._seen[id(value)] = value  # held: another object must not get its id
        if isinstance(value, torch.Tensor):
            self.tensors[id(value)] = value
        elif isinstance(value, nn.Module):
            for tensor in chain(value.parameters(), value.buffers()):
                self.tensors[id(tensor)] = tensor
        elif isinstance(value, (dict, list, tuple, set, frozenset, deque)):
            self._follow_container(cast("Any", value), path)
        elif (put_back := _of_known_kind(value)) is not None:
            self._put_back.append(put_back)
        elif isinstance(getattr(value, "__dict__", None), dict):
            own = vars(value)
            self._keep(own, dict(own))
            for name, one in own.items():
                self._follow(one, f"{path}.{name}")
        else:
            self.unknown.append(path)

    def _follow_container(self, value: Any, path: str) -> None:
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value)
            self._keep(items, dict(items))
            for key, one in items.items():
                self._follow(key, path)
                self._follow(one, f"{path}[{key!r}]" if isinstance(key, (str, int)) else path)
            return
        inside = list(value)
        if isinstance(value, (list, set, deque)):
            self._keep(cast("Any", value), inside)
        for one in inside:
            self._follow(one, path)

    def _keep(self, container: Any, contents: Any) -> None:
        self._put_back.append(lambda: _refill(container, contents))


def _refill(container: Any, contents: Any) -> None:
    container.clear()
    if isinstance(container, (dict, set)):
        cast("Any", container).update(contents)
    else:
        container.extend(contents)


def _of_known_kind(value: Any) -> Callable[[], object] | None:
    """What puts it back, where it keeps its state neither in attributes nor in containers."""
    if isinstance(value, np.ndarray):
        return functools.partial(np.copyto, cast("Any", value), cast("Any", value).copy())
    if isinstance(value, torch.Generator):
        return functools.partial(value.set_state, value.get_state())
    if isinstance(value, random.Random):
        return functools.partial(value.setstate, value.getstate())
    if isinstance(value, np.random.Generator):
        bits: Any = value.bit_generator
        return functools.partial(setattr, bits, "state", bits.state)
    return None
