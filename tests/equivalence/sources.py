"""Sources of a recipe: where batches come from, for an experiment and for a loop by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
)

from workbench.experiment import EpochSampler

Batch = tuple[torch.Tensor, torch.Tensor]
Arrays = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Source:
    """How to make one of a pair of arrays, and the batches of an epoch by hand.

    Args:
        make: what an experiment is given, from arrays, batch size and seed.
        by_hand: the batches of an epoch, from what `make` gave, arrays, batch size, seed and epoch.
    """

    make: Callable[[Arrays, int, int], Any]
    by_hand: Callable[[Any, Arrays, int, int, int], Iterator[Batch]]
    order: str = "workbench"
    shuffle: bool = True
    draws: bool = False
    """Whether a pass draws from torch's generator, as a loop over a loader does."""


class Stream(IterableDataset[Batch]):
    """Samples one after the other, beginning elsewhere in every epoch that it is told."""

    def __init__(self, arrays: Arrays, declared: int | None) -> None:
        self.arrays, self.declared, self.epoch = arrays, declared, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        x, y = self.arrays
        for at in range(len(x)):
            row = (at + 3 * self.epoch) % len(x)
            yield x[row], y[row]


class Sized(Stream):
    """Declares a length that is not its own."""

    def __len__(self) -> int:
        assert self.declared is not None
        return self.declared


class ByEpoch(Sampler[int]):
    """An order of one's own that follows the epoch."""

    def __init__(self, length: int) -> None:
        self.length, self.epoch = length, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter([(row * 7 + self.epoch) % self.length for row in range(self.length)])


class Named(Dataset[dict[str, torch.Tensor]]):
    """Samples as mappings, with labels by their name."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input": self.arrays[0][row], "labels": self.arrays[1][row]}


def _ordered(_given: Any, arrays: Arrays, size: int, seed: int, epoch: int) -> Iterator[Batch]:
    """In the order that an experiment gives to samples."""
    sampler = EpochSampler(len(arrays[0]), seed)
    sampler.set_epoch(epoch)
    for rows in sampler.indices().split(size):
        yield arrays[0][rows], arrays[1][rows]


def _whole_batches(
    _given: Any, arrays: Arrays, size: int, seed: int, epoch: int
) -> Iterator[Batch]:
    for x, y in _ordered(_given, arrays, size, seed, epoch):
        if len(x) == size:
            yield x, y


def _in_turn(_given: Any, arrays: Arrays, size: int, _seed: int, _epoch: int) -> Iterator[Batch]:
    for rows in torch.arange(len(arrays[0])).split(size):
        # not a slice: MKL gives other last bits where memory begins at another address
        yield arrays[0][rows], arrays[1][rows]


def _looped(given: Any, _arrays: Arrays, _size: int, _seed: int, epoch: int) -> Iterator[Batch]:
    """As a loop over a loader of one's own does, which tells what shuffles the epoch."""
    for part in (
        getattr(given, "sampler", None),
        getattr(given, "batch_sampler", None),
        getattr(given, "dataset", None),
        getattr(getattr(given, "batch_sampler", None), "sampler", None),
    ):
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)
    yield from given


def _distributed(arrays: Arrays, size: int, seed: int) -> Any:
    data = TensorDataset(*arrays)
    sampler = DistributedSampler(data, num_replicas=2, rank=0, seed=seed)
    return DataLoader(data, size, sampler=sampler)


def _weighted(arrays: Arrays, size: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    weights = [1.0 + row % 3 for row in range(len(arrays[0]))]
    sampler = WeightedRandomSampler(weights, len(arrays[0]), generator=generator)
    return DataLoader(TensorDataset(*arrays), size, sampler=sampler)


def _batch_sampler(arrays: Arrays, size: int, _seed: int) -> Any:
    sampler = BatchSampler(ByEpoch(len(arrays[0])), size, drop_last=False)
    return DataLoader(TensorDataset(*arrays), batch_sampler=sampler)


def _generator(arrays: Arrays, size: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed + 1)
    return DataLoader(TensorDataset(*arrays), size, shuffle=True, generator=generator)


SOURCES: dict[str, Source] = {
    "arrays": Source(lambda arrays, size, seed: arrays, _ordered),
    "arrays in turn": Source(lambda arrays, size, seed: arrays, _in_turn, shuffle=False),
    "dataset": Source(lambda arrays, size, seed: TensorDataset(*arrays), _ordered),
    "list of samples": Source(lambda arrays, size, seed: list(zip(*arrays, strict=True)), _ordered),
    "mappings": Source(lambda arrays, size, seed: Named(arrays), _ordered),
    "loader": Source(
        lambda arrays, size, seed: DataLoader(TensorDataset(*arrays), size, shuffle=True), _ordered
    ),
    "loader, whole batches": Source(
        lambda arrays, size, seed: DataLoader(
            TensorDataset(*arrays), size, shuffle=True, drop_last=True
        ),
        _whole_batches,
    ),
    "loader's own order": Source(
        lambda arrays, size, seed: DataLoader(TensorDataset(*arrays), size, shuffle=True),
        _looped,
        order="loader",
        draws=True,
    ),
    "loader's own generator": Source(_generator, _looped, order="loader", draws=True),
    "distributed sampler": Source(_distributed, _looped, draws=True),
    "weighted sampler": Source(_weighted, _looped, draws=True),
    "batch sampler": Source(_batch_sampler, _looped, draws=True),
    "batches": Source(
        lambda arrays, size, seed: list(_in_turn(None, arrays, size, seed, 0)), _in_turn
    ),
    "stream": Source(
        lambda arrays, size, seed: DataLoader(Stream(arrays, None), size), _looped, draws=True
    ),
    "stream with a wrong length": Source(
        lambda arrays, size, seed: DataLoader(Sized(arrays, len(arrays[0]) - size), size),
        _looped,
        draws=True,
    ),
}

VALIDATIONS: dict[str, Callable[[Arrays, int, int], Any]] = {
    "arrays": lambda arrays, size, seed: arrays,
    "loader": lambda arrays, size, seed: DataLoader(TensorDataset(*arrays), size),
    "shuffled loader": lambda arrays, size, seed: DataLoader(
        TensorDataset(*arrays), size, shuffle=True
    ),
    "loader's own generator": lambda arrays, size, seed: _generator(arrays, size, seed + 7),
}
"""What is validated on, of arrays, batch size and seed; loaders draw as a plain loop's do."""
