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
        self.steps_per_epoch = source.steps_per_epoch
        """As declared, or as long as the last epoch was; 0 while nobody knows."""
        self._iterator: Iterator[Any] | None = None
        self._batch: Any = None
        self.fetching = False
        """Whether the loader was at work when something was raised."""
        self.replays_failure = False
        """Whether the current batch is one whose step did not go through."""

    @property
    def at_end(self) -> bool:
        """Whether every batch of this epoch has been seen, as far as its length is known."""
        declared = self.source.steps_per_epoch
        return declared > 0 and self.index >= declared

    def take(self) -> Any:
        """The current batch, None at the end of the epoch.

        Raises:
            DataError: the epoch has no batch at all.
            Exception: whatever the loader raises; the position is kept.
        """
        self.replays_failure = self._batch is not None
        if self._batch is None:
            self.fetching = True
            try:
                if self._iterator is None:
                    self._iterator = self.source.batches(self.epoch, self.index)
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
        self._batch = None
        self.index += 1

    def skip(self) -> None:
        """Leave out the current batch, whose step did not go through."""
        if self._batch is not None:
            self.done()

    def preview(self) -> Any:
        """The batch that the next step would get; the position stays.

        Raises:
            DataError: there is none.
            Exception: whatever the loader raises.
        """
        if self._batch is not None or not self.source.repeats:
            batch = self.take()  # fetched again it might be another, or gone: it stays current
            if batch is not None:
                return batch
        for epoch, index in ((self.epoch, self.index), (self.epoch + 1, 0)):
            found = next(self.source.batches(epoch, index), _END)
            if found is not _END:
                return found
        raise self._no_batch()

    def next_epoch(self) -> None:
        """Begin the next epoch with its first batch."""
        self.steps_per_epoch = self.index or self.steps_per_epoch
        self.epoch += 1
        self.index = 0
        self._iterator = None

    def release(self) -> None:
        """Let go of the loader's iterator and its worker processes; the position is kept."""
        self._iterator = None

    def _ended(self) -> None:
        self._iterator = None
        if self.index == 0:
            raise self._no_batch()
        self.steps_per_epoch = self.index

    def _no_batch(self) -> DataError:
        return DataError(
            f"{self.source.name} gave no batch; an epoch needs at least one. An iterator that is "
            f"used up cannot be read again: give a DataLoader or a list"
        )
