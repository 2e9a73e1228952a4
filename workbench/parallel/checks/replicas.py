"""Compare bit by bit what all ranks hold whole: weights, buffers, settings of the optimizer.

Ranks apply the same gradients to the same weights with the same operations, so under `ddp` weights
are bitwise the same everywhere, and so are under `fsdp` those that stay whole, and all of them in
an update for which they are gathered (`workbench.parallel.rank.whole_optimizer`). Nothing compares
them in a step. Where an optimizer, a hook of it or a schedule depends on something that each rank
has of its own (the mean of its last batch, which on a rank is a part), the ranks diverge
permanently. So the weights are compared when an epoch ends and with each checkpoint: each is
reduced to one number for its bits, and ranks exchange these numbers.

Buffers are compared as well, except those of batch norm: each rank's follows its own rows.
"""

from __future__ import annotations

import contextlib
import numbers
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy

from workbench.experiment.state.host_bytes import host_bytes
from workbench.parallel.checks.batch_sums import BATCH_NORMS
from workbench.parallel.sentences import listed
from workbench.parallel.transfer.object_state import differing

if TYPE_CHECKING:
    from workbench.experiment.training import Training

Checksum = tuple[tuple[int, ...], int]

_COLUMNS = 1021
"""Columns of a table with 8 bytes in each cell, whose columns are summed; a prime, so that rows of
a tensor that were exchanged are in other columns."""


def compare(training: Training, updated: Mapping[str, Checksum]) -> None:
    """Add a note on what is not the same on all ranks; every rank must call it.

    Args:
        training: the training of this rank.
        updated: `checksums` of parameters that were whole only for an update.
    """
    model = training.model
    whole = [(n, p) for n, p in model.named_parameters() if not isinstance(p, DTensor)]
    weights = {**updated, **checksums(whole)}
    buffers = checksums(_buffers(training))
    of_ranks = of_all_ranks((dict(_settings(training.optimizer)), weights, buffers))
    settings, weights, buffers = (
        differing([one[kind] for one in of_ranks]) for kind in range(len(of_ranks[0]))
    )
    if apart := [*settings, *weights]:
        training.note(
            f"{listed(apart)} {_are(apart)} not the same on all ranks, so this is not what one "
            "process trains: mostly an optimizer, a hook of it or a schedule goes by something "
            "that each rank has of its own, as what the model keeps of its last batch, of which a "
            "rank has a part. Let it go by weights, gradients and the number of steps alone, or "
            "train in one process; what comes back is in part one rank's and in part another's"
        )
    if buffers:
        training.note(
            f"{listed(buffers)} {_are(buffers)} not the same on all ranks, as each sees its own "
            "rows; the first rank's is what all have after an epoch, and what comes back"
        )


def of_all_ranks(own: Any) -> list[Any]:
    """Return what each rank has, in order of ranks; every rank must call it."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return found


def checksums(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, Checksum]:
    """Return the shape of each and a number for its bits; for a sharded one, of this rank's shard.

    Tensors whose bits cannot be read (sparse, nested or lazy ones, some of a class of their own)
    are left out.
    """
    found: dict[str, Checksum] = {}
    for name, tensor in tensors:
        own: Any = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if own.layout is torch.strided and not own.is_nested and not is_lazy(own):
            with contextlib.suppress(RuntimeError, TypeError):
                found[name] = tuple(own.shape), _checksum(own.detach())
    return found


@torch.no_grad()
def _checksum(tensor: torch.Tensor) -> int:
    if tensor.device.type == "cpu":
        return zlib.crc32(host_bytes(tensor).data)
    plain = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return _sum_of_words(plain.view(torch.uint8))


def _sum_of_words(data: torch.Tensor) -> int:
    """Sum modulo 2^64; factors are odd, so any bit that differs changes the sum.

    Args:
        data: the bytes; all but one number stays on the device.
    """
    if data.data_ptr() % 8:
        data = data.clone()
    size = 8 * _COLUMNS
    words = data[: len(data) // size * size].view(torch.int64).view(-1, _COLUMNS).sum(0)
    rest = data[len(data) // size * size :].to(torch.int64)
    row = torch.cat([words, rest])
    return int((row * (2 * torch.arange(len(row), device=row.device) + 1)).sum())


def _buffers(training: Training) -> Iterator[tuple[str, torch.Tensor]]:
    """Return all buffers except those of batch norm."""
    of_norms = {
        id(buffer)
        for module in training.model.modules()
        if isinstance(module, BATCH_NORMS)
        for buffer in module.buffers(recurse=False)
    }
    return (it for it in training.model.named_buffers() if id(it[1]) not in of_norms)


def _settings(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Any]]:
    """Yield the numbers in its parameter groups, with what to call them."""
    groups = optimizer.param_groups
    for at, group in enumerate(groups):
        where = f" in group {at}" if len(groups) > 1 else ""
        for key, value in group.items():
            if isinstance(value, torch.Tensor):
                for of in checksums([(key, value)]).values():
                    yield f"the optimizer's {key}{where}", of
            elif _is_plain(value):
                yield f"the optimizer's {key}{where}", repr(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(isinstance(one, numbers.Number) for one in cast("Any", value))
    return isinstance(value, numbers.Number)


def _are(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"
