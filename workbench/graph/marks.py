"""Marks on tensors: which cuts a value comes from, without keeping the tensor alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

from workbench.graph.torch_private import base_of


class Marks:
    """Tensor -> a number with one bit for each cut. Follows tensors by identity."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._origin: dict[int, tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor]]] = {}

    @property
    def any(self) -> bool:
        """Whether anything was marked yet."""
        return bool(self._found)

    def of(self, tensors: Iterable[torch.Tensor]) -> int:
        """The marks of all ``tensors`` together."""
        mask = 0
        for tensor in tensors:
            entry = self._found.get(id(tensor))
            if entry is not None and entry[0]() is tensor:  # else its number was given away again
                mask |= entry[1]
        return mask

    def put(self, tensors: Iterable[torch.Tensor], mask: int) -> None:
        """Add ``mask`` to each of ``tensors``."""
        for tensor in tensors:
            self._found[id(tensor)] = (weakref.ref(tensor), mask | self.of((tensor,)))

    def put_base(self, tensor: torch.Tensor, mask: int) -> None:
        """``tensor`` was written in place: mark what it is a view of, which changed as well."""
        base = base_of(tensor)
        if base is not None:
            self.put((base,), mask)

    def alias(self, tensor: torch.Tensor, origin: torch.Tensor) -> None:
        """``tensor`` shares the memory of ``origin``, unseen by autograd."""
        self._origin[id(tensor)] = (weakref.ref(tensor), weakref.ref(origin))

    def origin_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What ``tensor`` is an alias of, if it is one."""
        entry = self._origin.get(id(tensor))
        return entry[1]() if entry is not None and entry[0]() is tensor else None
