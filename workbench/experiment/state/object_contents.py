"""Contents of an object at one moment, to detect later what has changed in it.

Elements and attributes are compared by identity: each object that they hold is inspected by itself.
Values of tensors and arrays are compared by a checksum.
"""

from __future__ import annotations

import types
import zlib
from typing import Any

import numpy as np
import torch

from workbench.experiment.state.hook_reach import bound_by
from workbench.experiment.state.host_bytes import host_bytes
from workbench.experiment.state.object_change import Change, generator_state
from workbench.experiment.state.object_copy import every_attribute
from workbench.modes.core.containers import CONTAINERS, contents_of

_MISSING = object()


class Contents:
    """Contents of an object at the moment of construction.

    Args:
        value: the object.
    """

    def __init__(self, value: Any) -> None:
        self._own: dict[Any, Any] = {}
        self._inside: list[Any] | None = None
        self._whole: Any = None
        self._mark: int | None = None
        """Checksum of values that can be compared with those of before: a mask, or the data, may be
        large and never change."""
        if isinstance(value, (torch.Tensor, np.ndarray)):
            self._whole, self._mark = _Values(value), _checksum(value)
        elif isinstance(value, types.FunctionType):
            self._own = bound_by(value)
        elif (state := generator_state(value)) is not None:
            self._whole = state
        else:
            self._own = every_attribute(value)
            if isinstance(value, CONTAINERS):
                self._inside = contents_of(value)

    def since(self, before: Contents) -> Change | None:
        """Return what differs from ``before``; None if nothing does.

        To undo what was done in between, call it on the former contents with the present ones.
        """
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
    """Return a checksum of a tensor or an array in host memory; None if it cannot be compared."""
    array: Any = values
    if isinstance(values, torch.Tensor):
        if values.device.type != "cpu" or values.layout is not torch.strided or values.is_quantized:
            return None
        try:
            array = host_bytes(values)
        except RuntimeError:  # of a subclass
            return None
    elif array.dtype.hasobject:
        return None
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)


def _are_same(one: list[Any] | None, other: list[Any] | None) -> bool:
    """Return whether both have the same elements, by identity."""
    if one is None or other is None or len(one) != len(other):
        return one is other
    return all(
        a is b or (isinstance(a, tuple) and isinstance(b, tuple) and [*map(id, a)] == [*map(id, b)])
        for a, b in zip(one, other, strict=True)
    )


class _Values:
    """Values of a tensor or array, pickled instead of the object that both sides know by number."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __reduce__(self) -> Any:
        if isinstance(self._of, torch.Tensor):
            return _values, (self._of.detach().cpu().clone(),)
        return _values, (self._of.copy(),)


def _values(found: Any) -> Any:
    return found
