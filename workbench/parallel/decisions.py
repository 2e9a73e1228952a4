"""Values of the data that a forward reads, as ``if x.mean() > 0`` does, and whether they matter.

What Python decides by a value that was computed of a batch, it decides for all samples of it. Ranks
that have other samples may decide otherwise. Some of these readings change nothing (a mean that is
logged, a block that is skipped where a mask has nothing in it), so a forward is computed once more
for each, with the other answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_READ = torch.ops.aten._local_scalar_dense.default
_ANY = ("any", "all")
_NOT = ("logical_not", "bitwise_not")


class Decisions(TorchDispatchMode):
    """Counts what a forward reads of its data, and answers one of these otherwise.

    Args:
        data: tensors of the batch; what is computed of them is data too.
        otherwise: the number of the reading that gets another answer, from 0; None: none does.
    """

    def __init__(self, data: Iterable[torch.Tensor], otherwise: int | None = None) -> None:
        super().__init__()
        self._held = [one.untyped_storage() for one in data if _has_storage(one)]
        self._of_data = set(map(_memory_of, self._held))
        self._of_any: set[int] = set()
        """Those that say whether any or all are so."""
        self._otherwise = otherwise
        self.count = 0
        """Of readings of yes or no and of numbers that are not whole."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation, and follow where the data go."""
        found = cast("Callable[..., Any]", func)(*args, **(kwargs or {}))
        given = [one for one in pytree.tree_leaves((args, kwargs)) if _has_storage(one)]
        if not any(_memory(one) in self._of_data for one in given):
            return found
        for one in (*pytree.tree_leaves(found), *_written(func, args)):
            if _has_storage(one) and _memory(one) not in self._of_data:
                self._held.append(one.untyped_storage())  # held: another must not get its place
                self._of_data.add(_memory(one))
        name = func._schema.name.split("::")[1].rstrip("_")
        is_any = any(_memory(one) in self._of_any for one in given)
        if name in _ANY or (name in _NOT and is_any):
            self._of_any |= {_memory(one) for one in pytree.tree_leaves(found) if _has_storage(one)}
        if func is not _READ or is_any or not isinstance(found, (bool, float)):
            return found
        self.count += 1
        if self.count - 1 != self._otherwise:
            return found
        return not found if isinstance(found, bool) else -found - 1.0


def _memory(tensor: torch.Tensor) -> int:
    return _memory_of(tensor.untyped_storage())


def _memory_of(storage: torch.UntypedStorage) -> int:
    """Which memory it is, for as long as anything holds it."""
    return storage._cdata  # pyright: ignore[reportPrivateUsage] - torch's own weak references go by it


def _written(func: Any, args: Any) -> list[Any]:
    """What an operation writes in place."""
    arguments = zip(func._schema.arguments, args, strict=False)
    return [one for spec, one in arguments if spec.alias_info and spec.alias_info.is_write]


def _has_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested
