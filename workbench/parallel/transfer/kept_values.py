"""Numbers, tensors and arrays that a model and other objects of a training keep, for comparison.

Where a batch is computed as a whole and in parts (`workbench.parallel.checks.batch_sums`), they
show what follows all samples of a batch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn

from workbench.experiment.state.object_copy import attributes

if TYPE_CHECKING:
    from workbench.parallel.transfer.object_state import ObjectState

CLOSE = 1e-4
"""Tolerance within which two are the same, relative to the largest value."""
LENGTH = "the length of "
_MOST_BYTES = 64 * 2**20
"""Maximum size of a tensor that is compared."""
_MOST_ELEMENTS = 4_096
"""Maximum number of elements of a container that are compared: the last of a list."""
_DEEP = 3


def kept_values(model: nn.Module, objects: ObjectState) -> dict[str, Any]:
    """Return copies of numbers, tensors and arrays that modules and other objects hold."""
    found: dict[str, Any] = {}
    for path, value in _values(model, objects):
        found.setdefault(path, value)  # an object may be listed under where it was before
    return found


def _values(model: nn.Module, objects: ObjectState) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for name, module in model.named_modules():
        own = {**attributes(module), **vars(module)["_buffers"]}
        for key, value in own.items():
            yield from _leaves(".".join(filter(None, ("model", name, key))), value, seen, _DEEP)
    for path, one in objects.named:
        if isinstance(one, nn.Module):
            continue
        yield from _leaves(path, one, seen, 1)
        for key, value in attributes(one).items():
            yield from _leaves(f"{path}.{key}", value, seen, 1)


def _leaves(path: str, value: Any, seen: set[int], deep: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (bool, int, float, complex, str, bytes)):
        yield path, value
    elif isinstance(value, torch.Tensor):
        if value.layout is torch.strided and value.nbytes <= _MOST_BYTES and not value.is_nested:
            yield path, value.detach().clone()
    elif isinstance(value, (np.ndarray, np.generic)):
        array = cast("Any", np.asarray(value))
        if array.nbytes <= _MOST_BYTES and not array.dtype.hasobject:
            yield path, array.copy()
    elif isinstance(value, (list, tuple, set, frozenset, deque, dict)) and id(value) not in seen:
        seen.add(id(value))
        items = cast("Any", value)
        yield f"{LENGTH}{path}", len(items)
        if not deep or isinstance(value, (set, frozenset)):
            return
        if isinstance(value, dict):
            pairs = list(items.items())[-_MOST_ELEMENTS:]
        else:  # from the end: what was added by the last batch is there, by whichever name
            last = list(items)[-_MOST_ELEMENTS:]
            pairs = zip(range(-len(last), 0), last, strict=True)
        for key, one in pairs:
            yield from _leaves(f"{path}[{key!r}]", one, seen, deep - 1)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two of them are the same, except for sums in another order."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if not one.numel() or torch.equal(one, other):
            return True
        if not (one.is_floating_point() or one.is_complex()):
            return False
        if one.dtype.itemsize < 2:  # 8-bit types have no arithmetic
            one, other = one.float(), other.float()
        gap = (one - other).abs().nan_to_num(nan=math.inf).max()
        both_nan = bool((one.isnan() == other.isnan()).all()) and not bool((~one.isnan()).any())
        return both_nan or bool(gap <= CLOSE * one.abs().nan_to_num().max())
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=CLOSE)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.shape == other.shape and one.dtype.kind == other.dtype.kind == "f":
            return bool(np.allclose(one, other, rtol=CLOSE, equal_nan=True))
        return bool(np.array_equal(cast("Any", one), cast("Any", other)))
    return type(one) is type(other) and bool(one == other)
