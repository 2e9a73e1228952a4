"""Samples that a rank makes in its own process, so that it sees what a single process sees.

One process makes sample after sample in the order of the batch, and each may draw random numbers:
those that a sample draws depend on how many the samples before it drew. So where samples draw,
every rank makes those of the whole batch, from the same state as all others, and keeps its part;
where they draw nothing, it makes its part only. The first batch shows which it is and is always
made whole. A ``collate_fn`` of the user's own is also called for the whole batch, if what it
returns can be cut (`workbench.parallel.data.batch_dimension`): a sample may have other values next
to other samples (mixup, padding to the longest), which no single batch rules out.

What a data set keeps from sample to sample (a count, a cache) is treated like a generator
(`workbench.experiment.data.dataset_state`). Samples that begin to draw later are detected when they
do; all ranks make whole batches from the next step on (`workbench.parallel.rank.rank`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, default_collate

from workbench.experiment.data.dataset_generators import Generators
from workbench.parallel.data.batch_dimension import Rows, RowsError, cut, find_rows
from workbench.parallel.sentences import listed

STAND_IN = 2
"""Number of samples of a stand-in: the minimum that batch norm needs."""


class Samples:
    """Makes a rank's parts of batches.

    Args:
        loader: the user's loader, without workers.
        bounds: takes a number of rows and gives the first and last (exclusive) that are this
            rank's.
        generators: what samples may draw from.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        bounds: Callable[[int], tuple[int, int]],
        generators: Generators,
    ) -> None:
        self._loader, self._bounds, self._generators = loader, bounds, generators
        self._collate: Callable[[list[Any]], Any] = loader.collate_fn
        self._size, self._before = 0, b""
        self._rows: Rows = None
        self.is_known = False
        """Whether a batch has been made."""
        self.draws = False
        """Whether samples draw random numbers."""
        self._own = loader.collate_fn is not default_collate
        """Whether a sample may have other values next to other samples."""
        self.can_cut = True
        """Whether a whole batch can be cut into the parts of ranks."""
        self.drew_late = False
        """Whether samples of the last batch drew random numbers, and none before it did."""
        self.fewer: tuple[Any, int] | None = None
        """For a first batch: this rank's first samples, one or two, and their number."""

    @property
    def rows(self) -> Rows:
        """Where the samples of a batch are, as far as a user's ``collate_fn`` shows it."""
        return self._rows if self._own and self.can_cut else None

    @property
    def is_whole(self) -> bool:
        """Whether every rank makes whole batches."""
        return self.draws or not self.is_known or (self._own and self.can_cut)

    def agree(self) -> None:
        """Have all ranks make samples in one way; every rank must call it after the first batch."""
        facts = torch.tensor([self.is_known, self.draws, not self.can_cut])
        dist.all_reduce(facts := facts.to(torch.int64), dist.ReduceOp.MAX)
        self.is_known, self.draws, cannot = map(bool, facts.tolist())
        self.can_cut = not cannot

    def note(self) -> str:
        """Return what the user should know about it, or ``""``."""
        if self._own and not self.can_cut:
            return (
                "what collate_fn gives for a whole batch cannot be cut into parts, so each rank "
                "collates its part alone: where it goes by the other samples of a batch (padding, "
                "mixing) a rank sees other values than one process does"
            )
        why = f"samples {self.what_they_do()}" if self.draws else ""
        if self._own:
            why = "collate_fn may give a sample other values beside other samples"
        return why and (
            f"{why}, so every rank makes the whole batch and keeps its part, which is what one "
            "process sees; with num_workers in a DataLoader, ranks share that work and draw "
            "numbers of their own"
        )

    def what_they_do(self) -> str:
        """Return why samples cannot be made separately, such as ``draw random numbers``."""
        kept = self._generators.changed()
        return f"change what the data set keeps ({listed(kept)})" if kept else "draw random numbers"

    def batches(self, whole: list[list[int]], generator: Any) -> Iterator[Any]:
        """Yield this rank's part of every batch; a part is never empty.

        Args:
            whole: the rows of every batch.
            generator: generator for the loader.
        """
        return self._loaded(map(self._next_rows, whole), self._made, generator)

    def made_from(self, rows: Iterator[list[int]], generator: Any) -> Iterator[Any]:
        """Yield batches of these rows, as the user's loader makes them."""
        return self._loaded(rows, self._collate, generator)

    def _loaded(
        self, rows: Iterator[list[int]], collate: Callable[[list[Any]], Any], generator: Any
    ) -> Iterator[Any]:
        """Yield batches; the rows of each are requested right before it is made."""
        loader = DataLoader(
            self._loader.dataset,
            batch_sampler=cast("Any", rows),
            collate_fn=collate,
            generator=generator,
            pin_memory=self._loader.pin_memory,
        )
        return iter(loader)

    def _next_rows(self, whole: list[int]) -> list[int]:
        self._size = len(whole)
        if self.is_known and self.is_whole:  # however samples are made from now on
            return whole
        self._before = self._generators.mark()
        return whole if self.is_whole else whole[slice(*self._mine())]

    def _mine(self) -> tuple[int, int]:
        """First and last row of this rank's part or of a stand-in for it."""
        first, last = self._bounds(self._size)
        return (first, last) if last > first else (0, min(STAND_IN, self._size))

    def _made(self, samples: list[Any]) -> Any:
        first, last = self._mine()
        self.fewer = None
        if not self.is_known:
            return self._first(samples, first, last)
        if not self.is_whole:
            batch = self._collate(samples)
            self.drew_late = self._generators.mark() != self._before
            return batch
        return self._part(samples, first, last)

    def _part(self, samples: list[Any], first: int, last: int) -> Any:
        """Return this rank's part of a batch that was made whole."""
        if self._collate is default_collate or not self.can_cut:
            return self._collate(samples[first:last])
        return cut(self._collate(samples), self._rows, first, last, len(samples))

    def _first(self, samples: list[Any], first: int, last: int) -> Any:
        """Return the part of the first batch, which shows how those after it are made."""
        few = 2 if last - first > 2 else 1
        made = self._generators.state()
        if self._collate is default_collate:
            batch, fewer = (self._collate(samples[first:to]) for to in (last, first + few))
            self.draws = self._generators.mark() != self._before
        else:
            whole = self._collate(samples)
            self.draws = self._generators.mark() != self._before
            after = self._generators.state()
            batch, fewer = self._parts(whole, samples, (first, last, first + few), made)
            self._generators.go_to(after)  # what was drawn for the comparison does not count
        self.draws = self._generators.refresh() or self.draws
        self.fewer, self.is_known = (fewer, few), True
        return batch

    def _parts(
        self, whole: Any, samples: list[Any], places: tuple[int, int, int], made: Any
    ) -> tuple[Any, Any]:
        """Return a part, and a smaller one, of a user's ``collate_fn``; finds where to cut.

        Args:
            whole: what it returns for all samples.
            samples: all samples.
            places: where the part begins and ends, and where the smaller one ends.
            made: state of the generators before ``whole``.
        """
        first, last, near = places
        count = len(samples)
        self._generators.go_to(made)
        alone = self._collate(samples[first:last])
        if last - first == count:  # only a smaller one can be compared
            self._generators.go_to(made)
        other, at = (alone, last) if last - first < count else (self._collate(samples[:near]), near)
        try:
            self._rows = find_rows(whole, other, count, at - first)
            cut(whole, self._rows, first, at, count)
        except (RowsError, IndexError, KeyError, TypeError):
            self.can_cut = False
            self._generators.go_to(made)
            return alone, self._collate(samples[first:near])
        return tuple(cut(whole, self._rows, first, to, count) for to in (last, near))
