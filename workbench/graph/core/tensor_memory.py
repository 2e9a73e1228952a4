"""The memory behind a tensor, whatever kind of tensor it is.

An ordinary tensor has one storage. A sparse tensor consists of its indices and values, a subclass
made of other tensors consists of these, a tensor inside `torch.func.vmap` stands for the tensor
under it, and a oneDNN tensor has memory but no storage. A wrapper subclass reports that it has a
storage but has none: reading its values other than through its class follows a null pointer, which
ends the process.

Nothing here raises (except `values_of`), makes a node, or runs code of a tensor's class other than
``__tensor_flatten__``. If the memory cannot be found, the result says so; that is no error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from workbench.graph.core.held_tensors import Search
from workbench.torch_private.autograd import (
    has_functorch_wrapper,
    without_dispatch,
    without_functions,
)
from workbench.torch_private.tensors import (
    as_plain,
    has_memory,
    is_nested,
    is_virtual,
    is_zero_tensor,
    layout_of,
    mkldnn_memory,
    nested_shape,
    num_values,
    sparse_parts,
    storage_key,
    unwrapped,
)


class Memory(NamedTuple):
    """One piece of memory in which a tensor is stored."""

    key: int
    """Identity of the storage; valid while the storage lives."""
    num_bytes: int
    """Size of the whole storage."""
    shape: tuple[Any, ...]
    """Shape of the tensor in it; ``"*"`` for a dimension of a nested tensor that varies in size."""
    takes_none: bool
    """Whether ``num_bytes`` is only what it would take, as for meta and fake tensors."""


class NoValuesError(ValueError):
    """A tensor has no values that can be read; the message names its class."""


def has_own_storage(value: Any) -> bool:
    """Whether ``value`` is an ordinary tensor over one storage, as nearly all are."""
    if not _is_of_torch(value):
        return False
    is_strided = value.layout is torch.strided and not value.is_nested
    return is_strided and not has_functorch_wrapper(value)


def memory_of(tensor: torch.Tensor) -> tuple[Memory, ...] | None:
    """The memory in which ``tensor`` is stored; None if that cannot be found.

    Empty for the parameters of a lazy module that has not run, and for zeros that are not stored.
    For a nested tensor it is the memory of its values: the lengths of its rows are not counted,
    just as the shape of any other tensor is not.
    """
    try:
        if has_own_storage(tensor):
            return _of_storage(tensor)
        with without_functions(), without_dispatch():
            opaque = mkldnn_memory(tensor)
            if opaque is not None:
                return (Memory(*opaque, tuple(tensor.shape), takes_none=False),)
            parts = _parts(tensor)
            if parts is None:
                return None
            return tuple(one for part in parts for one in _of_storage(part))
    except Exception:  # noqa: BLE001 - a class of the user's, or a torch that we do not know
        return None


def memory_keys(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Identities of all the memory in which ``tensors`` are known to be stored."""
    return {one.key for tensor in tensors for one in memory_of(tensor) or ()}


def plain_tensors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors, over one storage each, that ``tensor`` is or is made of; empty if unknown."""
    if has_own_storage(tensor):
        return [tensor]
    try:
        with without_functions(), without_dispatch():
            return _parts(tensor) or []
    except Exception:  # noqa: BLE001 - as above
        return []


def values_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The plain tensors, detached from any graph, that ``tensor`` is made of.

    Raises:
        NoValuesError: its values cannot be read, or only its class knows what they are.
    """
    with without_functions(), without_dispatch():
        return _values(tensor)


def _values(tensor: torch.Tensor) -> list[torch.Tensor]:
    inner = None if _is_of_torch(tensor) else _inner_tensors(tensor)
    if inner is not None:
        return [part for one in inner for part in _values(one)]
    is_strided = layout_of(tensor) is torch.strided
    is_inside = has_functorch_wrapper(tensor)
    if is_inside or (is_strided and num_values(tensor) and not has_memory(tensor)):
        kind = "tensor inside torch.func" if is_inside else type(tensor).__name__
        raise NoValuesError(f"a {'meta tensor' if tensor.is_meta else kind} has no values to read")
    return [as_plain(tensor)]


def _is_of_torch(value: Any) -> bool:
    """Whether its class is torch's own, which reports itself correctly and runs no code."""
    return type(value) is torch.Tensor or type(value) is torch.nn.Parameter


def _of_storage(tensor: torch.Tensor) -> tuple[Memory, ...]:
    """Memory of a tensor over one storage."""
    key, num_bytes = storage_key(tensor)
    takes_none = bool(num_bytes) and not has_memory(tensor)
    if takes_none and is_zero_tensor(tensor):
        return ()
    shape = nested_shape(tensor) if is_nested(tensor) else tuple(tensor.shape)
    return (Memory(key, num_bytes, shape, takes_none),)


def _parts(tensor: torch.Tensor, above: frozenset[int] = frozenset()) -> list[torch.Tensor] | None:
    """The tensors, over one storage each, behind ``tensor``; None if they cannot be found.

    Args:
        tensor: any tensor.
        above: ``id`` of the tensors that it is a part of.
    """
    if has_own_storage(tensor):
        return [tensor]
    if is_lazy(tensor) or is_zero_tensor(tensor) or id(tensor) in above:
        return []
    above = above | {id(tensor)}
    if has_functorch_wrapper(tensor):
        return _parts(unwrapped(tensor), above)
    inner = _inner_tensors(tensor)
    if inner:
        return _all_parts(inner, above)
    sparse = sparse_parts(tensor)
    if sparse is not None:
        return _all_parts(sparse, above)
    if layout_of(tensor) is not torch.strided:
        return None
    if has_memory(tensor) or not storage_key(tensor)[1]:
        return [as_plain(tensor)]
    if is_virtual(tensor):
        return [tensor]
    return _all_parts(Search().attributes(tensor).tensors, above) or None


def _all_parts(tensors: list[torch.Tensor], above: frozenset[int]) -> list[torch.Tensor] | None:
    found = [_parts(tensor, above) for tensor in tensors]
    return None if None in found else [part for parts in found if parts for part in parts]


def _inner_tensors(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    """The tensors that a subclass reports to be made of; None if it reports nothing."""
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is None:
        return None
    try:
        names: list[str] = flatten(tensor)[0]
        values = [getattr(tensor, name) for name in names]  # a DTensor names its mesh as well
    except Exception:  # noqa: BLE001 - a class of the user's
        return None
    return [value for value in values if isinstance(value, torch.Tensor)]
