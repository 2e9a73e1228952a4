"""Each rank's part of the same batches that a single process would see.

The order of samples is a pure function of (seed, epoch, index), so every rank knows the whole order
and fetches only its part of each batch, unless samples draw random numbers in this process
(`workbench.parallel.data.random_samples`). Parts are consecutive: rank 0 has the first rows, and
sizes differ by one sample at most. The short batch that ends an epoch, and every batch where the
model has batch norm, is shared by as many ranks as can have two samples of it, since batch norm
refuses a single one. A rank without any fetches some all the same, because every rank must take
part in every collective; its loss has a weight of zero (`workbench.parallel.rank.step`). Where a
step cannot be divided (`workbench.parallel.checks.batch_sums`) every batch belongs to the first
rank, and the others have the same one as a stand-in.

Loader workers get seeds by rank, so that no two ranks draw the same numbers; they draw other
numbers than those of a single process, whose workers make whole batches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info

from workbench.experiment.data.dataset_generators import (
    Generators,
    drawn_by,
    found_in,
    kept_by,
    move_apart,
)
from workbench.experiment.data.sampler import mix
from workbench.experiment.data.sources import (
    ArraySource,
    DataError,
    DataSource,
    ForeignSource,
    LoaderSource,
)
from workbench.parallel.data.batch_dimension import Rows
from workbench.parallel.data.random_samples import STAND_IN, Samples


class Part(NamedTuple):
    """One rank's part of a batch."""

    batch: Any
    """Samples as the source yields them; the batch's first samples if none belongs to this rank."""
    num_samples: int
    """Number of samples of this rank; 0 where ``batch`` is a stand-in."""
    whole: int = 0
    """Number of samples of the whole batch."""
    fewer: tuple[Any, int] | None = None
    """The first samples of ``batch``, one or two, as a batch of their own, and their number; only
    for a first batch, and where they are available."""
    rows: Rows = None
    """Where its samples are, if that is known; None: in the first dimension of everything."""
    made: int = 0
    """Number of samples that ``batch`` is made of."""


class _Rows(NamedTuple):
    rows: list[int]
    mine: int
    """Number of rows that are this rank's; 0 for a stand-in."""
    whole: int
    """Number of rows of the batch."""


class RankSource(DataSource):
    """One rank's part of every batch of a source.

    Lengths, sizes and positions are those of whole batches, so that a cursor over it has the
    position that a cursor over the whole would have.

    Raises:
        DataError: the order of samples is the loader's own: ranks could not agree on it.
    """

    def __init__(self, source: DataSource, rank: int, world_size: int, *, fewest: int = 1) -> None:
        if not isinstance(source, (ArraySource, LoaderSource)):
            why = f" ({source.why})" if isinstance(source, ForeignSource) and source.why else ""
            raise DataError(
                f"the batches of {source.name} come in an order of their own{why}, so "
                f"{world_size} ranks could not agree on who takes which part of one: give its "
                "samples as arrays, a Dataset or a DataLoader with a plain sampler"
            )
        self._rank, self._world = rank, world_size
        self._size = source.batch_size or 1  # batches of none are never ours
        self.name, self.note, self.order = source.name, source.note, source.order
        self.batch_size, self.num_samples = source.batch_size, source.num_samples
        self.steps_per_epoch = source.steps_per_epoch
        self.has_workers = source.has_workers
        self.fewest = fewest
        """Minimum number of samples that a rank has of a batch, unless it has none."""
        self.is_undivided = False
        """Whether every rank has whole batches, which belong to the first rank."""
        self.whole = source
        """The source that is divided."""
        self.samples: Samples | None = None
        """Makes the parts where this process makes them, sample by sample."""
        self.drawn_from = Generators(lambda: drawn_by(source), kept_by(source))
        """What samples may draw from in this process."""
        if isinstance(source, LoaderSource) and not source.has_workers:
            self.samples = Samples(source.loader, self._bounds, self.drawn_from)

    def batches(self, epoch: int, start: int = 0, *, skip: int = 0) -> Iterator[Part]:
        """Yield this rank's part of each batch; a part is never empty."""
        begin = skip + start * self._size
        if self.samples is not None:
            return self._made_here(self.samples, epoch, begin)
        parts = self._parts(epoch, begin)
        if isinstance(self.whole, LoaderSource):
            return self._of_workers(self.whole, epoch, begin, list(parts))
        return self._of_arrays(self.whole, parts)

    def need_two(self) -> None:
        """Give a rank at least two samples of a batch, or none, from now on."""
        self.fewest = 2
        if self.samples is not None:
            self.samples.is_known = False

    def undivided(self, *, yes: bool = True) -> None:
        """Give every rank whole batches from now on, or its part of each again."""
        self.is_undivided = yes
        if self.samples is not None:
            self.samples.is_known = False

    def notes(self) -> Iterator[str]:
        """Yield what the user should know about how batches are divided."""
        is_small = self._world > 1 and self._size // self.fewest < self._world
        if is_small and not self.is_undivided:
            share = max(1, self._size // self.fewest)
            why = "batch norm needs two samples" if self.fewest > 1 else "no more have a sample"
            yield (
                f"batches of {self._size:,} are computed by {share:,} of {self._world:,} ranks "
                f"({why}): larger ones give every rank its part"
            )
        if self.samples is not None:
            yield self.samples.note()

    def steps_after(self, skip: int) -> int:
        """Return the number of whole batches."""
        return self.whole.steps_after(skip)

    def ends_in_one(self, skip: int = 0) -> bool:
        """Return whether the whole batches of an epoch end in one sample."""
        return self.whole.ends_in_one(skip)

    def _bounds(self, rows: int) -> tuple[int, int]:
        """Return the first and last row (exclusive) of this rank in a batch of this many rows."""
        if self.is_undivided:
            return 0, rows
        fewest = self.fewest if rows == self._size else 2
        sharing = min(self._world, max(1, rows // fewest))
        first, last = (-(-rank * rows // sharing) for rank in (self._rank, self._rank + 1))
        return min(first, rows), min(last, rows)

    def _weight(self, count: int) -> int:
        """Return how many of the samples that are made here count as this rank's."""
        return 0 if self.is_undivided and self._rank else count

    def _parts(self, epoch: int, begin: int) -> Iterator[_Rows]:
        for rows in self._whole_batches(epoch, begin):
            mine = rows[slice(*self._bounds(len(rows)))]
            yield _Rows(mine or rows[:STAND_IN], self._weight(len(mine)), len(rows))

    def _whole_batches(self, epoch: int, begin: int) -> Iterator[list[int]]:
        sampler = self.whole.sampler
        sampler.set_epoch(epoch)
        order: list[int] = sampler.indices()[begin:].tolist()
        for at in range(0, len(order), self._size):
            rows = order[at : at + self._size]
            if self._drops_last and len(rows) < self._size:
                return
            yield rows

    @property
    def _drops_last(self) -> bool:
        return isinstance(self.whole, LoaderSource) and self.whole.loader.drop_last

    def _of_arrays(self, arrays: ArraySource, parts: Iterator[_Rows]) -> Iterator[Part]:
        is_first = True
        for part in parts:
            inputs, targets = arrays.inputs[part.rows], arrays.targets[part.rows]
            few = 2 if len(targets) > 2 else 1
            fewer = ((inputs[:few], targets[:few]), few) if is_first else None
            made = len(part.rows)
            yield Part((inputs, targets), part.mine, part.whole, fewer, made=made)
            is_first = False

    def _made_here(self, samples: Samples, epoch: int, begin: int) -> Iterator[Part]:
        whole = cast("LoaderSource", self.whole)
        batches = list(self._whole_batches(epoch, begin))
        whole.begin_epoch(epoch, begin)
        for rows, batch in zip(batches, samples.batches(batches, whole.generator), strict=True):
            first, last = self._bounds(len(rows))
            weight, made = self._weight(last - first), last - first or min(STAND_IN, len(rows))
            yield Part(batch, weight, len(rows), samples.fewer, samples.rows, made)

    def _of_workers(
        self, whole: LoaderSource, epoch: int, begin: int, parts: list[_Rows]
    ) -> Iterator[Part]:
        given = whole.loader
        stream = 0 if self.is_undivided else self._rank  # the same batches, or parts of them
        settings: dict[str, Any] = {
            "num_workers": given.num_workers,
            "collate_fn": given.collate_fn,
            "pin_memory": given.pin_memory,
            "timeout": given.timeout,
            "worker_init_fn": _Apart(given.worker_init_fn, given.collate_fn, stream),
            "prefetch_factor": given.prefetch_factor,
            "multiprocessing_context": given.multiprocessing_context,
        }
        whole.begin_epoch(epoch, begin)
        if stream:
            seed = mix(whole.sampler.worker_seed, stream, stream=1)
            whole.generator.manual_seed(seed)
        loader = DataLoader(
            given.dataset,
            batch_sampler=[part.rows for part in parts],
            generator=whole.generator,
            **settings,
        )
        for part, batch in zip(parts, loader, strict=True):
            yield Part(batch, part.mine, part.whole, made=len(part.rows))


@dataclass(frozen=True)
class _Apart:
    """The user's ``worker_init_fn``, after which workers of other ranks draw other numbers.

    It may seed by the worker's number only, and a data set may hold generators, of which each
    worker has a copy. Workers of rank 0 draw what they would draw without ranks.
    """

    given: Callable[[int], None] | None
    collate: Any
    """The worker's own ``collate_fn``, which is sent to it together with this."""
    rank: int

    def __call__(self, worker: int) -> None:
        if self.given is not None:
            self.given(worker)
        if not self.rank:
            return
        info: Any = get_worker_info()
        move_apart(found_in(info.dataset, self.collate), self.rank)
        if self.given is not None:
            random.seed(f"{random.getrandbits(64)} {self.rank}")
            np.random.seed([self.rank, *np.random.randint(0, 2**32, 4, dtype=np.uint32)])
            drawn = int(torch.randint(2**62, (), device="cpu"))
            torch.manual_seed(mix(drawn, self.rank))


class RankBatches(RankSource):
    """One rank's share of whole batches: every second of them, where there are two ranks.

    For validation, where a mean over a batch must be that of a single process. All ranks have
    equally many: a rank that is left without one gets another's, as a stand-in. Undivided, every
    rank has all of them, and they belong to the first rank.

    Raises:
        DataError: as `RankSource`.
    """

    leaves_no_trace = False
    """Whether a batch was evaluated as a check of what it changes, and changed nothing."""
    _draws: bool | None = None
    """Whether samples draw random numbers here; None before the first batch."""

    def _parts(self, epoch: int, begin: int) -> Iterator[_Rows]:
        batches = list(self._whole_batches(epoch, begin))
        if self.is_undivided:
            for rows in batches:
                yield _Rows(rows, self._weight(len(rows)), len(rows))
            return
        for first in range(0, len(batches), self._world):
            at = first + self._rank
            rows = batches[at] if at < len(batches) else batches[first]
            yield _Rows(rows, len(rows) if at < len(batches) else 0, len(rows))

    def _made_here(self, samples: Samples, epoch: int, begin: int) -> Iterator[Part]:
        """Make batches; where samples draw, every rank makes all of them, as one process does."""
        whole = cast("LoaderSource", self.whole)
        batches = list(self._whole_batches(epoch, begin))
        whole.begin_epoch(epoch, begin)
        of_others = len(batches) // self._world * self._world  # the first of the last round
        stand_in = of_others if len(batches) - of_others <= self._rank else len(batches)
        making: list[int] = []

        def rows() -> Iterator[list[int]]:
            for at in range(len(batches)):
                is_wanted = self.is_undivided or at % self._world == self._rank or at == stand_in
                if self._draws is not False or is_wanted:
                    making[:] = [at]
                    yield batches[at]

        before = self.drawn_from.mark()
        for batch in samples.made_from(rows(), whole.generator):
            if self._draws is None:
                self._draws = self.drawn_from.mark() != before or self.drawn_from.refresh()
            (at,) = making
            size = len(batches[at])
            if self.is_undivided:
                yield Part(batch, self._weight(size), size)
            elif at % self._world == self._rank:
                yield Part(batch, size, size)
            elif at == stand_in:
                yield Part(batch, 0, size)
