"""Tensors of a training that share one memory, and share it again in a copy of the training.

``b.weight.data = a.weight.data`` ties two parameters without making them one, and a buffer may be a
view of another. Pickled, each has a memory of its own, and a write to one is no longer seen in the
other. So tensors that share memory are listed before a training is sent, and put into one memory
again once it is unpacked. What `fully_shard` cuts into shards shares nothing with another tensor,
so there it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

import torch

if TYPE_CHECKING:
    from workbench.experiment.training import Training

_NAMED = 4


class Shared(NamedTuple):
    """Some tensors in one memory, in which no other tensor of the training is stored."""

    names: list[str]
    tensors: list[torch.Tensor]
    offsets: list[int]
    """Offset of the first element of each, from the first of all, in elements."""

    @property
    def why_not_in_a_copy(self) -> str:
        """Why tensors of a copy cannot share one memory, or ``""``."""
        kinds = {(one.dtype, one.device) for one in self.tensors}
        return "in other types" if len(kinds) > 1 else ""

    def share_again(self) -> None:
        """Have the tensors of a copy share one memory; each keeps its values."""
        first = self.tensors[0]
        length = max(
            offset + _extent(one) for one, offset in zip(self.tensors, self.offsets, strict=True)
        )
        memory = torch.zeros(length, dtype=first.dtype, device=first.device)
        for one, offset in zip(self.tensors, self.offsets, strict=True):
            view = memory.as_strided(one.shape, one.stride(), offset)
            view.copy_(one.detach())
            one.data = view


def shared_in(tensors: Iterable[tuple[str, torch.Tensor]]) -> list[Shared]:
    """Return those of ``tensors``, with their names, that share memory with another.

    Args:
        tensors: dense tensors; others are left out, and so is one that comes a second time.
    """
    by_memory: dict[int, dict[int, tuple[str, torch.Tensor]]] = {}
    for name, one in tensors:
        if _is_dense(one):
            there = by_memory.setdefault(one.untyped_storage().data_ptr(), {})
            there.setdefault(id(one), (name, one))
    found: list[Shared] = []
    for there in by_memory.values():
        for those in _overlapping(list(there.values())):
            begin = min(one.data_ptr() for _, one in those)
            offsets = [(one.data_ptr() - begin) // one.element_size() for _, one in those]
            found.append(Shared([name for name, _ in those], [one for _, one in those], offsets))
    return found


def _overlapping(
    named: list[tuple[str, torch.Tensor]],
) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Yield tensors that overlap; weights of an LSTM are next to each other in one memory."""
    those: list[tuple[str, torch.Tensor]] = []
    end = 0
    for pair in sorted(named, key=lambda pair: pair[1].data_ptr()):
        one = pair[1]
        if those and one.data_ptr() >= end:
            if len(those) > 1:
                yield those
            those = []
        those = [*those, pair]
        end = max(end, one.data_ptr() + _extent(one) * one.element_size())
    if len(those) > 1:
        yield those


def _is_dense(value: Any) -> TypeGuard[torch.Tensor]:
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return is_dense and not value.is_meta and value.numel() > 0


def refusal(shared: list[Shared], parameters: set[int], *, sharded: bool) -> str:
    """Return why these cannot share memory in another process, in one sentence, or ``""``.

    Args:
        shared: shared tensors of a training.
        parameters: identities of its parameters.
        sharded: whether each of these will be cut into shards.
    """
    for one in shared:
        names = f"{', '.join(one.names[:_NAMED])}{' and more' if len(one.names) > _NAMED else ''}"
        if one.why_not_in_a_copy:
            return (
                f"{names} share one memory {one.why_not_in_a_copy}, which a copy in another "
                "process would not: make one of them where it is used"
            )
        if sharded and any(id(tensor) in parameters for tensor in one.tensors):
            return (
                f"{names} share one memory, as by .data, and fsdp cuts each into shards of its "
                "own: use ddp, or tie them by making them one (b.weight = a.weight)"
            )
    return ""


def shared_moments(training: Training) -> str:
    """Return a sentence on what the optimizer keeps for several parameters at once, or ``""``."""
    names = {parameter: name for name, parameter in training.model.named_parameters()}
    named: list[tuple[str, torch.Tensor]] = [(name, one) for one, name in names.items()]
    seen: set[int] = set()
    state = cast("dict[Any, dict[str, Any]]", training.optimizer.state)
    twice: list[str] = []
    for parameter, kept in state.items():
        for key, value in kept.items():
            if not _is_dense(value):
                continue
            name = f"{key!r} of {names.get(parameter, 'a parameter')}"
            twice += [name] if id(value) in seen else []
            seen.add(id(value))
            named.append((name, value))
    for one in shared_in(named):
        if any(id(tensor) in seen for tensor in one.tensors):
            twice += one.names
    if not twice:
        return ""
    return (
        f"{type(training.optimizer).__name__} keeps {', '.join(twice[:_NAMED])} in the memory of "
        "another tensor, which ranks would not: have it keep tensors of their own for each "
        "parameter"
    )


def _extent(tensor: torch.Tensor) -> int:
    """Return the number of elements of memory from its first to its last."""
    sides = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in sides)
