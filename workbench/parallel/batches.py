"""Each rank's part of the very batches that a single process would see.

The order of samples is a pure function of (seed, epoch, index), so every rank knows the whole order
and fetches its part of each batch alone. Parts follow each other: rank 0 has the first rows, and
they differ by one sample at most. The short batch that ends an epoch is shared by as many ranks as
can have two samples of it, since batch norm refuses a single one. A rank without any fetches some
all the same, because every rank must take part in every collective; its loss weighs nothing
(`workbench.parallel.step`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch.utils.data import DataLoader

from workbench.experiment.sampler import mix
from workbench.experiment.sources import ArraySource, DataError, DataSource, LoaderSource

_STAND_IN = 2
"""Samples of a stand-in: what batch norm needs at least."""


class Part(NamedTuple):
    """What one rank has of a batch."""

    batch: Any
    """As the source makes them; the batch's first samples where none is this rank's."""
    num_samples: int
    """Of this rank; 0 where ``batch`` is a stand-in."""


class _Rows(NamedTuple):
    rows: list[int]
    mine: int
    """How many of them are this rank's; 0 for a stand-in."""


class RankSource(DataSource):
    """One rank's part of every batch of a source.

    Lengths, sizes and positions are those of whole batches, so that a cursor over it stands where a
    cursor over the whole would.

    Raises:
        DataError: the order of samples is the loader's own: ranks could not agree on it.
    """

    def __init__(self, source: DataSource, rank: int, world_size: int) -> None:
        if not isinstance(source, (ArraySource, LoaderSource)):
            raise DataError(
                f"{source.name} makes its own batches, so {world_size} ranks could not tell which "
                "part of one is whose: give its samples as arrays, a Dataset or a DataLoader with "
                "a plain sampler"
            )
        self._whole, self._rank, self._world = source, rank, world_size
        self._size = source.batch_size or 1  # batches of none are never ours
        self.name, self.note, self.order = source.name, source.note, source.order
        self.batch_size, self.num_samples = source.batch_size, source.num_samples
        self.steps_per_epoch = source.steps_per_epoch
        self.has_workers = source.has_workers

    def batches(self, epoch: int, start: int = 0, *, skip: int = 0) -> Iterator[Part]:
        """This rank's part of each batch, and never none of it."""
        parts = self._parts(epoch, skip + start * self._size)
        if isinstance(self._whole, LoaderSource):
            return self._of_loader(self._whole, epoch, list(parts))
        arrays = self._whole
        return (
            Part((arrays.inputs[part.rows], arrays.targets[part.rows]), part.mine) for part in parts
        )

    def steps_after(self, skip: int) -> int:
        """As many as there are whole batches."""
        return self._whole.steps_after(skip)

    def ends_in_one(self, skip: int = 0) -> bool:
        """As that of whole batches does."""
        return self._whole.ends_in_one(skip)

    def _bounds(self, rows: int) -> tuple[int, int]:
        """First and last row (exclusive) of this rank in a batch of so many."""
        sharing = self._world if rows == self._size else min(self._world, max(1, rows // 2))
        first, last = (-(-rank * rows // sharing) for rank in (self._rank, self._rank + 1))
        return min(first, rows), min(last, rows)

    def _parts(self, epoch: int, begin: int) -> Iterator[_Rows]:
        for rows in self._whole_batches(epoch, begin):
            mine = rows[slice(*self._bounds(len(rows)))]
            yield _Rows(mine or rows[:_STAND_IN], len(mine))

    def _whole_batches(self, epoch: int, begin: int) -> Iterator[list[int]]:
        sampler = self._whole.sampler
        sampler.set_epoch(epoch)
        order: list[int] = sampler.indices()[begin:].tolist()
        for at in range(0, len(order), self._size):
            rows = order[at : at + self._size]
            if self._drops_last and len(rows) < self._size:
                return
            yield rows

    @property
    def _drops_last(self) -> bool:
        return isinstance(self._whole, LoaderSource) and self._whole.loader.drop_last

    def _of_loader(self, whole: LoaderSource, epoch: int, parts: list[_Rows]) -> Iterator[Part]:
        given = whole.loader
        settings: dict[str, Any] = {
            "num_workers": given.num_workers,
            "collate_fn": given.collate_fn,
            "pin_memory": given.pin_memory,
            "timeout": given.timeout,
            "worker_init_fn": given.worker_init_fn,
        }
        if given.num_workers > 0:
            settings["prefetch_factor"] = given.prefetch_factor
            settings["multiprocessing_context"] = given.multiprocessing_context
        whole.generator.manual_seed(mix(whole.seed, epoch, stream=1 + self._rank))
        loader = DataLoader(
            given.dataset,
            batch_sampler=[part.rows for part in parts],
            generator=whole.generator,
            **settings,
        )
        for part, batch in zip(parts, loader, strict=True):
            yield Part(batch, part.mine)


class RankBatches(RankSource):
    """One rank's share of whole batches: every second of them, where there are two ranks.

    For validation, where a mean over a batch has to be that of a single process. All ranks have
    equally many: one that is left without gets another's, as a stand-in.

    Raises:
        DataError: as `RankSource`.
    """

    def _parts(self, epoch: int, begin: int) -> Iterator[_Rows]:
        batches = list(self._whole_batches(epoch, begin))
        for first in range(0, len(batches), self._world):
            at = first + self._rank
            rows = batches[at] if at < len(batches) else batches[first]
            yield _Rows(rows, len(rows) if at < len(batches) else 0)
