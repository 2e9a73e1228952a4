"""Sources of batches: arrays, loaders in an order of Workbench, iterables in their own order.

A `DataSource` yields the batches of one epoch from any position on. If Workbench chooses the order
(arrays, datasets, loaders with a plain sampler), it is that of `EpochSampler`, so the batch size
can change within an epoch: the rest of the epoch is split again, and no sample is lost or seen
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from workbench.experiment.data.sampler import EpochSampler
from workbench.processes import computing, interrupts_kept_from_children


class DataError(ValueError):
    """Data that cannot be trained on; the message states what was given and what is valid."""


class DataSource:
    """Source of the batches of one epoch, in an order of its own."""

    name: str = ""
    """Class name of what was given, for display."""
    batch_size: int | None = None
    num_samples: int | None = None
    steps_per_epoch: int = 0
    """Number of batches, of which the last may be left out (`ends_in_one`); 0 if it is not known
    before the epoch has ended."""
    order: str = ""
    """Whose order of samples is used, if a loader was given that has one too."""
    note: str = ""
    """What is not guaranteed about the order, in one sentence, or ``""``."""
    repeats: bool = True
    """Whether the same epoch gives the same batches when it is requested again."""
    draws_again: bool = False
    """Whether a failed fetch of a batch may have drawn random numbers in this process, and gives
    the same batch if it is repeated with the same numbers."""
    is_fresh: bool = False
    """Whether every batch has memory of its own; otherwise the next one may overwrite it."""
    has_exact_length: bool = True
    """Whether an epoch certainly has `steps_per_epoch` batches; otherwise it ends when its batches
    do."""
    draws: bool = False
    """Whether a pass draws from torch's global generator, as a loader's own order does."""
    has_workers: bool = False
    """Whether worker processes fetch batches. Persistent workers serve one pass: a second one
    resets it."""

    def batches(self, epoch: int, start: int = 0, *, skip: int = 0) -> Iterator[Any]:
        """Iterate over the batches of an epoch without its first ``skip`` samples, from any batch.

        Args:
            epoch: index of the epoch, from 0.
            start: number of batches to leave out after the skipped samples.
            skip: number of samples to leave out first: those seen in batches of another size.
        """
        raise NotImplementedError(f"{type(self).__name__} must give batches")

    def peek(self, epoch: int, default: Any) -> Any:
        """Return the first batch of an epoch that has not begun, or ``default``.

        The batch is given once more when the epoch begins.
        """
        return next(self.batches(epoch), default)

    @property
    def generators(self) -> list[torch.Generator]:
        """Torch's generators that a pass draws from, in addition to the global one."""
        return []

    @property
    def can_begin_again(self) -> bool:
        """Whether a pass that has just begun can be restarted as if it had not begun."""
        return self.repeats

    def steps_after(self, skip: int) -> int:
        """Return the number of batches after the first ``skip`` samples of an epoch.

        It is 0 if that is not known.
        """
        if not skip:
            return self.steps_per_epoch
        if self.num_samples is None or not self.batch_size:
            return 0
        return -(-max(0, self.num_samples - skip) // self.batch_size)

    def ends_in_one(self, skip: int = 0) -> bool:
        """Return whether the last of several batches of an epoch has one sample, as far as known.

        Args:
            skip: number of samples of the epoch that are left out first.
        """
        return _ends_in_one(self.num_samples or 0, self.batch_size, skip)

    def first(self, epoch: int, skip: int, size: int) -> Any:
        """Return one batch of ``size`` samples (or as many as are left) after the first ``skip``.

        Raises:
            DataError: the data makes its own batches.
            Exception: what the dataset raises.
        """
        del epoch, skip
        raise self._not_ours(size)

    def with_batch_size(self, size: int) -> DataSource:
        """Return a source of the same samples in the same order, ``size`` at a time.

        Raises:
            DataError: the data makes its own batches, or all of them would be left out.
        """
        raise self._not_ours(size)

    def _not_ours(self, size: int) -> DataError:
        return DataError(
            f"batches of {size:,} were requested, and {self.name} makes its own: give its samples "
            "as arrays, a Dataset or a DataLoader with a plain sampler, or create it again"
        )


_BATCHES_AT_ONCE = 256
"""Number of batches for which the order is split at a time: one call for all is cheaper than one
for each."""


class ArraySource(DataSource):
    """A pair of arrays in memory: a batch is one indexing operation per array."""

    is_fresh = True

    def __init__(
        self, inputs: torch.Tensor, targets: torch.Tensor, batch_size: int, seed: int, shuffle: bool
    ) -> None:
        self.name = "arrays"
        self.inputs, self.targets = inputs, targets
        self.batch_size = self._size = batch_size
        self.num_samples = len(inputs)
        self.steps_per_epoch = -(-len(inputs) // batch_size)
        self.sampler = EpochSampler(len(inputs), seed, shuffle=shuffle)

    def batches(self, epoch: int, start: int = 0, *, skip: int = 0) -> Iterator[Any]:
        """Yield pairs ``(inputs, targets)``, the last one smaller if the size does not divide."""
        order = self._order(epoch, skip + start * self._size)
        if len(order) == 0:
            return  # nothing is left of the epoch, and `split` would make one empty part of it
        for part in order.split(self._size * _BATCHES_AT_ONCE):
            for rows in part.split(self._size):
                yield self.inputs.index_select(0, rows), self.targets.index_select(0, rows)

    def first(self, epoch: int, skip: int, size: int) -> Any:
        """Return a pair ``(inputs, targets)``."""
        rows = self._order(epoch, skip)[:size]
        return self.inputs.index_select(0, rows), self.targets.index_select(0, rows)

    def with_batch_size(self, size: int) -> ArraySource:
        """Return a source of the same arrays."""
        sampler = self.sampler
        return ArraySource(self.inputs, self.targets, size, sampler.seed, sampler.shuffle)

    def _order(self, epoch: int, skip: int) -> torch.Tensor:
        self.sampler.set_epoch(epoch)
        return self.sampler.indices()[skip:].to(self.inputs.device)


class LoaderSource(DataSource):
    """A `DataLoader` rebuilt around `EpochSampler`; all its other settings are kept."""

    def __init__(self, loader: DataLoader[Any], seed: int, *, shuffle: bool, name: str) -> None:
        self.name = name
        self.seed = seed
        dataset = cast(Any, loader.dataset)
        self.sampler = EpochSampler(len(dataset), seed, shuffle=shuffle)
        self.generator = torch.Generator()
        self.order = f"shuffled by seed {seed}, not by the loader" if shuffle else ""
        self.batch_size = loader.batch_size
        self.num_samples = len(dataset)
        self.has_workers = loader.num_workers > 0
        self.draws_again = not self.has_workers  # workers have generators of their own
        # torch's own stacks samples; the user's may refill a buffer
        self.is_fresh = loader.collate_fn is default_collate
        self.loader = _rebuilt(loader, self.sampler, self.generator, loader.batch_size)
        self.steps_per_epoch = len(self.loader)

    def batches(self, epoch: int, start: int = 0, *, skip: int = 0) -> Iterator[Any]:
        """Iterate over the loader's own batches, from the ``start``-th on."""
        self.begin_epoch(epoch, skip + start * (self.batch_size or 1))
        return _pass_over(self.loader)

    def begin_epoch(self, epoch: int, start: int = 0) -> None:
        """Set the epoch of the dataset, and seed the generator that seeds the loader's workers.

        Args:
            epoch: index of the epoch, from 0.
            start: number of its samples that were seen before.
        """
        self.sampler.set_epoch(epoch, start)
        _set_epoch(epoch, self.loader.dataset)
        self.generator.manual_seed(self.sampler.worker_seed)

    def steps_after(self, skip: int) -> int:
        """Return how many batches the loader gives; only whole ones with ``drop_last``."""
        steps = super().steps_after(skip)
        left = (self.num_samples or 0) - skip
        short = bool(self.loader.drop_last and left % (self.batch_size or 1))
        return steps - (short and steps > 0 and skip > 0)

    def ends_in_one(self, skip: int = 0) -> bool:
        """Return the same as for any source; False with ``drop_last``."""
        return not self.loader.drop_last and super().ends_in_one(skip)

    def first(self, epoch: int, skip: int, size: int) -> Any:
        """Return a batch, fetched and collated as by the loader, in this process."""
        self.sampler.set_epoch(epoch)
        rows = self.sampler.indices()[skip : skip + size].tolist()
        dataset = cast(Any, self.loader.dataset)
        _set_epoch(epoch, dataset)
        if callable(getattr(dataset, "__getitems__", None)):
            samples = dataset.__getitems__(rows)
        else:
            samples = [dataset[row] for row in rows]
        return self.loader.collate_fn(samples)

    def with_batch_size(self, size: int) -> LoaderSource:
        """Return a source whose loader has the same other settings."""
        count = self.num_samples or 0
        if self.loader.drop_last and size > count:
            raise DataError(
                f"batches of {size:,} were requested, and {self.name} has {count:,} samples: with "
                "drop_last, no batch would be left; choose a smaller size"
            )
        loader = _rebuilt(self.loader, self.sampler, self.generator, size)
        return LoaderSource(loader, self.seed, shuffle=self.sampler.shuffle, name=self.name)


class ForeignSource(DataSource):
    """An iterable whose order is its own, used unchanged.

    ``set_epoch`` is called on whatever shuffles by it (a loader, its samplers, its dataset). An
    epoch ends when the iterable does, whatever length it declares: a loader over an
    `IterableDataset` with workers may give more batches than its ``len``.
    """

    repeats = False

    def __init__(self, loader: Any, name: str, why: str, *, ends_in_one: bool = False) -> None:
        self.name, self.why = name, why
        self.loader = loader
        self._ends_in_one = ends_in_one
        self.batch_size = getattr(loader, "batch_size", None)
        self.steps_per_epoch = length(loader)
        self.num_samples = length(getattr(loader, "dataset", None)) or None
        self.has_exact_length = isinstance(loader, (list, tuple))
        self.draws = isinstance(loader, DataLoader)
        self.order = "the loader's own" if self.draws else ""
        is_repeated = self.draws or self.has_exact_length
        goes_on = "" if is_repeated else ": a resume repeats it if it repeats itself"
        self.note = f"order of samples is the loader's own{f' ({why})' if why else ''}{goes_on}"

    def batches(
        self,
        epoch: int,
        start: int = 0,
        *,
        skip: int = 0,  # noqa: ARG002 - the batch size never changes
    ) -> Iterator[Any]:
        """Begin a new pass over the loader; ``start`` batches are fetched and left out."""
        parts = (getattr(self.loader, name, None) for name in ("sampler", "batch_sampler"))
        parts = [part for part in parts if part is not None]
        inner = [getattr(part, "sampler", None) for part in parts]
        _set_epoch(epoch, self.loader, *parts, *inner, getattr(self.loader, "dataset", None))
        return islice(_pass_over(self.loader), start, None)

    def ends_in_one(self, skip: int = 0) -> bool:
        """Return the given value, or what torch's batch sampler makes of its sampler's length."""
        cut = getattr(self.loader, "batch_sampler", None)
        if type(cut) is not BatchSampler or cut.drop_last:
            return self._ends_in_one
        return _ends_in_one(length(cut.sampler), cut.batch_size, skip)

    @property
    def generators(self) -> list[torch.Generator]:
        """Generators of the loader and of its samplers."""
        parts = [
            self.loader,
            *(getattr(self.loader, at, None) for at in ("sampler", "batch_sampler")),
        ]
        parts += [getattr(part, "sampler", None) for part in parts]
        found = (getattr(part, "generator", None) for part in parts)
        return [one for one in found if isinstance(one, torch.Generator)]

    @property
    def can_begin_again(self) -> bool:
        """Whether torch's own samplers give the order of a dataset of samples."""
        return (
            type(self.loader) is DataLoader
            and not isinstance(self.loader.dataset, IterableDataset)
            and type(self.loader.sampler) in (RandomSampler, SequentialSampler)
            and type(self.loader.batch_sampler) is BatchSampler
        )

    def peek(self, epoch: int, default: Any) -> Any:
        """Return the same as for any source; generators of the loader are restored afterwards."""
        kept = [(one, one.get_state()) for one in self.generators]
        try:
            return super().peek(epoch, default)
        finally:
            for generator, state in kept:
                generator.set_state(state)

    def with_batch_size(self, size: int) -> ForeignSource:
        """Return this source, if its batches have that size.

        Raises:
            DataError: they have another size.
        """
        if size != self.batch_size:
            raise self._not_ours(size)
        return self


def _ends_in_one(samples: int, size: int | None, skip: int) -> bool:
    left = samples - skip
    return size is not None and size > 1 and left > 1 and left % size == 1


def _set_epoch(epoch: int, *parts: Any) -> None:
    """Call ``set_epoch`` with the epoch, from 0, on every part that has it, each once."""
    for part in {id(part): part for part in parts}.values():
        set_epoch = getattr(part, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)


def _rebuilt(
    loader: DataLoader[Any], sampler: EpochSampler, generator: torch.Generator, size: int | None
) -> DataLoader[Any]:
    settings: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "drop_last": loader.drop_last,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "in_order": loader.in_order,
    }
    if loader.num_workers > 0:
        settings["prefetch_factor"] = loader.prefetch_factor
        settings["persistent_workers"] = loader.persistent_workers
        settings["multiprocessing_context"] = loader.multiprocessing_context
    return DataLoader(loader.dataset, size, sampler=sampler, generator=generator, **settings)


def _pass_over(loader: Any) -> Iterator[Any]:
    """Begin a pass over ``loader``; the worker processes of a `DataLoader` survive an interrupt.

    An interrupt stops a cell. A worker that receives it exits, and with it the run in the
    background. Workers are forked while no experiment computes: `workbench.processes.forks`.
    """
    if not isinstance(loader, DataLoader) or loader.num_workers == 0:
        return iter(loader)
    with interrupts_kept_from_children(), computing.forking():
        return iter(cast("DataLoader[Any]", loader))


def length(sized: Any) -> int:
    """Return ``len`` of ``sized``; 0 if it has none."""
    try:
        return len(sized)
    except TypeError:
        return 0
