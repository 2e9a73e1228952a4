"""Where a run is in its data: the epoch, the batch, and the batch to replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.experiment.data import DataError, DataSource

_END = object()


class Cursor:
    """Gives one batch at a time; a batch stays current until its step has gone through."""

    def __init__(self, source: DataSource) -> None:
        self.source = source
        self.epoch = 0
        """Epochs completed."""
        self.index = 0
        """Batches of this epoch whose steps went through."""
        self._last_epoch = 0
        """Batches of the last epoch, where it had to be counted."""
        self._resized_at = 0
        """Batch of this epoch from which on they have their present size."""
        self._skip = 0
        """Samples of this epoch that were seen before that."""
        self._iterator: Iterator[Any] | None = None
        self._batch: Any = None
        self._taken = False
        """Whether the current batch was given to a step, and not only looked at."""
        self.fetching = False
        """Whether the loader was at work when something was raised."""
        self.replays_failure = False
        """Whether the current batch is one whose step did not go through."""

    @property
    def steps_per_epoch(self) -> int:
        """Batches of this epoch: as declared, or as many as the last had; 0 while nobody knows.

        Where their size changed within the epoch, batches of both sizes are counted.
        """
        return self._last_epoch or self._declared

    @property
    def samples_seen(self) -> int:
        """Samples of this epoch whose steps went through, where batches have a size."""
        return self._skip + (self.index - self._resized_at) * (self.source.batch_size or 0)

    @property
    def at_end(self) -> bool:
        """Whether every batch of this epoch has been seen, as far as its length is known."""
        return self.source.steps_per_epoch > 0 and self.index >= self._declared

    @property
    def _declared(self) -> int:
        if self._skip:
            return self._resized_at + self.source.steps_after(self._skip)
        return self.source.steps_per_epoch

    def steps_until(self, epoch: int) -> int:
        """Steps until so many epochs are completed; 0 while nobody knows."""
        further = (epoch - self.epoch - 1) * (self._last_epoch or self.source.steps_per_epoch)
        return self.steps_per_epoch - self.index + further if self.steps_per_epoch else 0

    def resize(self, source: DataSource) -> None:
        """Go on with ``source``, which has the same samples in batches of another size.

        The epoch goes on with the first sample that no step has gone through with; a batch whose
        step failed is cut anew.
        """
        self._skip, self._resized_at = self.samples_seen, self.index
        self.source, self._last_epoch = source, 0
        self._iterator = self._batch = None
        self._taken = False

    def position(self) -> dict[str, int]:
        """Where it is, for another cursor over the same samples (`go_to`)."""
        return {
            "epoch": self.epoch,
            "index": self.index,
            "last_epoch": self._last_epoch,
            "resized_at": self._resized_at,
            "skip": self._skip,
        }

    def go_to(self, position: dict[str, int]) -> None:
        """Go on from the `position` of another cursor over the same samples."""
        self.epoch, self.index = position["epoch"], position["index"]
        self._last_epoch, self._resized_at = position["last_epoch"], position["resized_at"]
        self._skip = position["skip"]
        self._iterator = self._batch = None
        self._taken = False

    def take(self) -> Any:
        """The current batch, None at the end of the epoch.

        Raises:
            DataError: the epoch has no batch at all.
            Exception: whatever the loader raises; the position is kept.
        """
        self.replays_failure = self._taken
        batch = self._current()
        self._taken = batch is not None
        return batch

    def _current(self) -> Any:
        if self._batch is None:
            self.fetching = True
            try:
                if self._iterator is None:
                    self._iterator = self._rest()
                found = next(self._iterator, _END)
            except BaseException:
                self._iterator = None
                raise
            self.fetching = False
            if found is _END:
                return self._ended()
            self._batch = found
        return self._batch

    def done(self) -> None:
        """The current batch's step went through."""
        self._batch, self._taken = None, False
        self.index += 1

    def skip(self) -> None:
        """Leave out the current batch, whose step did not go through."""
        if self._taken:
            self.done()

    def preview(self) -> Any:
        """The batch that the next step would get; the position stays.

        Raises:
            DataError: there is none.
            Exception: whatever the loader raises.
        """
        under_way = self._iterator is not None and self.source.has_workers
        if self._batch is not None or under_way or not self.source.repeats:
            # fetched again it might be another, or gone, or end the pass of the workers that are
            # at it: it stays current
            batch = self._current()
            if batch is not None:
                return batch
        for rest in (self._rest, lambda: self.source.batches(self.epoch + 1)):
            found = next(rest(), _END)
            if found is not _END:
                return found
        raise self._no_batch()

    def first(self, size: int) -> Any:
        """The next ``size`` samples as one batch; the position stays.

        Raises:
            DataError: the batches are made elsewhere.
            Exception: whatever the dataset raises.
        """
        return self.source.first(self.epoch, self.samples_seen, size)

    def next_epoch(self) -> None:
        """Begin the next epoch with its first batch."""
        if not self._skip:
            self._last_epoch = self.index or self._last_epoch
        self.epoch += 1
        self.index = self._resized_at = self._skip = 0
        self._iterator = None

    def release(self) -> None:
        """Let go of the loader's iterator and its worker processes; the position is kept."""
        self._iterator = None

    def _ended(self) -> None:
        self._iterator = None
        if self.index == 0:
            raise self._no_batch()
        self._last_epoch = 0 if self._skip else self.index

    def _rest(self) -> Iterator[Any]:
        """What is left of this epoch."""
        start = self.index - self._resized_at
        return self.source.batches(self.epoch, start, skip=self._skip)

    def _no_batch(self) -> DataError:
        return DataError(
            f"{self.source.name} gave no batch; an epoch needs at least one. An iterator that is "
            f"used up cannot be read again: give a DataLoader or a list"
        )
