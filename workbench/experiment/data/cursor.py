"""Position of a run in its data: the epoch, the batch, and the batch to replay."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from workbench.experiment.data.data import DataError, DataSource
from workbench.experiment.data.dataset_generators import Held, held_by, held_in_run
from workbench.experiment.state.host_random import HostRandom
from workbench.experiment.state.rng import RandomState, TorchState

_END = object()


class Cursor:
    """Gives one batch at a time; a batch stays current until its step has succeeded.

    Args:
        source: source of the batches.
        device: device that is trained on; a dataset may draw from its generator.
    """

    def __init__(self, source: DataSource, device: torch.device) -> None:
        self.source = source
        self._device = device
        self._random = TorchState(device)
        self._host_random = HostRandom()
        self.epoch = 0
        """Number of completed epochs."""
        self.index = 0
        """Number of batches of this epoch whose steps succeeded."""
        self._last_epoch = 0
        """Number of batches of the last epoch, if it had to be counted."""
        self.refuses_one = False
        """Whether the model is assumed to refuse a batch of one sample, which is then left out."""
        self._left_out = 0
        """Number of batches of this epoch that were left out for that reason."""
        self._last_left_out = 0
        """The same of the last epoch."""
        self._resized_at = 0
        """Index of the batch of this epoch from which on batches have their present size."""
        self._skip = 0
        """Number of samples of this epoch that were seen before that."""
        self._iterator: Iterator[Any] | None = None
        self._batch: Any = None
        self._is_over = False
        """Whether the loader has no further batch for this epoch."""
        self._taken = False
        """Whether the current batch was given to a step, and not only inspected."""
        self.fetching = False
        """Whether the loader was fetching when something was raised."""
        self.replays_failure = False
        """Whether the current batch is one whose step failed."""
        self._pass_begun: Any = None
        """Where and from which random states the pass has begun, if its batches depend on it."""
        self._pass_to_repeat: Any = None
        """The same of a pass in another process, which is repeated up to the position."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of this epoch; 0 while it is not known.

        It is the number of batches, as declared or as counted in the last epoch, without those that
        are left out because the model refuses a batch of one. If the batch size changed within the
        epoch, batches of both sizes are counted.
        """
        batches = self._batches
        return max(batches - max(self._left_out, self._to_leave_out(self._skip)), 0)

    @property
    def left_out_per_epoch(self) -> int:
        """Number of batches that a whole epoch leaves out, as far as it is known."""
        return self._to_leave_out(0)

    @property
    def is_taken(self) -> bool:
        """Whether a step computes with the current batch, or has failed on it."""
        return self._taken

    @property
    def _batches(self) -> int:
        expected = self._last_epoch or self._declared
        return max(expected, self.index) if expected else 0

    def _to_leave_out(self, skip: int) -> int:
        if self.source.ends_in_one(skip):
            return int(self.refuses_one)
        return 0 if skip else self._last_left_out

    @property
    def samples_seen(self) -> int:
        """Number of samples of this epoch whose steps succeeded, if batches have a size."""
        return self._skip + (self.index - self._resized_at) * (self.source.batch_size or 0)

    @property
    def at_end(self) -> bool:
        """Whether every batch of this epoch has been seen, as far as its length is known."""
        exact = self.source.has_exact_length and self.source.steps_per_epoch > 0
        return exact and self.index >= self._declared

    @property
    def _declared(self) -> int:
        if self._skip:
            return self._resized_at + self.source.steps_after(self._skip)
        return self.source.steps_per_epoch

    def steps_until(self, epoch: int) -> int:
        """Return the number of steps until ``epoch`` epochs are completed; 0 while unknown."""
        if not self._batches:
            return 0
        whole = (self._last_epoch or self.source.steps_per_epoch) - self.left_out_per_epoch
        further = (epoch - self.epoch - 1) * whole
        seen = self.index - self._left_out
        return self.steps_per_epoch - seen + further

    def resize(self, source: DataSource) -> None:
        """Continue with ``source``, which has the same samples in batches of another size.

        The epoch continues with the first sample that no successful step has used; a batch whose
        step failed is split again.
        """
        self._skip, self._resized_at = self.samples_seen, self.index
        self.source, self._last_epoch, self._last_left_out = source, 0, 0
        self._iterator = self._batch = None
        self._taken = self._is_over = False

    def position(self) -> dict[str, int]:
        """Return the position, for another cursor over the same samples (`go_to`)."""
        return {
            "epoch": self.epoch,
            "index": self.index,
            "last_epoch": self._last_epoch,
            "resized_at": self._resized_at,
            "skip": self._skip,
            "left_out": self._left_out,
            "last_left_out": self._last_left_out,
            "refuses_one": int(self.refuses_one),
        }

    def go_to(self, position: dict[str, int]) -> None:
        """Continue from the `position` of another cursor over the same samples."""
        self.epoch, self.index = position["epoch"], position["index"]
        self._last_epoch, self._resized_at = position["last_epoch"], position["resized_at"]
        self._skip, self.refuses_one = position["skip"], bool(position["refuses_one"])
        self._left_out, self._last_left_out = position["left_out"], position["last_left_out"]
        self._iterator = self._batch = None
        self._taken = self._is_over = False

    @property
    def random_before_batch(self) -> dict[str, Any] | None:
        """Random states before a batch was fetched that no step has used; None if there is none.

        Fetched again from them, in another process, it is the same.
        """
        if self._batch is None or not self.source.draws_again:
            return None
        here, before = RandomState(self._device), RandomState(self._device)
        here.save()
        try:
            self._random.restore()
            self._host_random.restore()
            before.save()
        finally:
            here.restore()
        return before.state_dict()

    @property
    def pass_state(self) -> Any:
        """Where the pass in progress has begun, for `repeat_pass`; None if none is."""
        return None if self._iterator is None else self._pass_begun

    def repeat_pass(self, state: Any) -> None:
        """Repeat the pass of another process, whose `pass_state` it is, up to the position."""
        self._pass_to_repeat = state

    def take(self) -> Any:
        """Return the current batch, None at the end of the epoch.

        Raises:
            DataError: the epoch has no batch at all.
            Exception: whatever the loader raises; the position is kept, and if the batch can be
                fetched again, so are the random states: it then draws the same numbers.
        """
        self.replays_failure = self._taken
        batch = self._current()
        self._taken = batch is not None
        return batch

    def peek(self) -> Any:
        """Return the current batch like `take`, for inspection before the step.

        Raises:
            DataError, Exception: as `take`.
        """
        return self._current()

    def _current(self) -> Any:
        if self._batch is None and not self._is_over:
            self.fetching, draws_again = True, self.source.draws_again
            if draws_again:
                if self._iterator is None:
                    self._host_random.find()
                self._random.save()
                self._host_random.save()
            try:
                if self._iterator is None:
                    self._iterator = self._begun()
                found = next(self._iterator, _END)
            except BaseException:
                self._iterator = None
                if draws_again:
                    self._random.restore()
                    self._host_random.restore()
                raise
            self.fetching = False
            if found is _END:
                return self._ended()
            self._batch = found
        return self._batch

    def done(self) -> None:
        """Record that the step of the current batch succeeded."""
        self._batch, self._taken = None, False
        self.index += 1

    def skip(self) -> None:
        """Leave out the current batch, whose step failed."""
        if self._taken:
            self.done()

    def leave_out(self) -> None:
        """Leave out the current batch, of one sample, which the model has refused."""
        self._left_out += 1
        self.refuses_one = True
        self.done()

    @property
    def restarts(self) -> bool:
        """Whether continuing would take the rest of this epoch from a new pass over the loader."""
        over = self._is_over or self._batch is not None or self._iterator is not None
        return self.index > 0 and not (over or self.source.repeats)

    @property
    def is_last_of_several(self) -> bool:
        """Whether the current batch is not the first of its epoch, and the last as far as known."""
        return 0 < self.index >= self._declared - 1

    def preview(self) -> Any:
        """Return the batch that the next step would get; the position is unchanged.

        A dataset that draws from generators of its own, or counts, continues as if it had not been
        queried, unless the batch is kept for the step. The caller restores the process's
        generators.

        Raises:
            DataError: there is none.
            Exception: whatever the loader raises.
        """
        under_way = self._iterator is not None and self.source.has_workers
        if self._batch is not None or under_way or not self.source.repeats:
            # fetched again it might be another, or gone, or end the pass of the workers that are
            # fetching it: it stays current
            batch = self._current()
            if batch is not None:
                return batch
        with self._data_undone():
            found = _END if self._is_over else next(self._rest(), _END)
            if found is _END:
                found = self.source.peek(self.epoch + 1, _END)
        if found is _END:
            raise self._no_batch()
        return found

    @property
    def holds_batch(self) -> bool:
        """Whether the next step's batch has already been fetched, for inspection or use."""
        return self._batch is not None

    def begin_again(self) -> None:
        """Discard the batch that was inspected before the first step: it is fetched again."""
        self._iterator = self._batch = None

    def first(self, size: int) -> Any:
        """Return the next ``size`` samples as one batch; the position is unchanged.

        Raises:
            DataError: the data makes its own batches.
            Exception: whatever the dataset raises.
        """
        with self._data_undone():
            return self.source.first(self.epoch, self.samples_seen, size)

    @contextmanager
    def _data_undone(self, held: Held | None = None) -> Generator[None]:
        """Undo on exit what making samples changes in a dataset: in ``held``, or what it holds."""
        held = held or held_by(self.source)
        before = held.read()
        try:
            yield
        finally:
            held.write(before)

    def next_epoch(self) -> None:
        """Begin the next epoch with its first batch."""
        if not self._skip:
            self._last_epoch = self.index or self._last_epoch
            self._last_left_out = self._left_out
        if self.source.ends_in_one(self._skip):
            self.refuses_one = self._left_out > 0
        self.epoch += 1
        self.index = self._resized_at = self._skip = self._left_out = 0
        self._iterator, self._is_over = None, False

    def release(self, *, for_good: bool = False) -> None:
        """Release the loader's iterator and its worker processes; the position is kept.

        In the middle of an epoch that cannot be repeated, they are kept unless ``for_good`` is set:
        the next run continues with the remaining batches.
        """
        if for_good or self.source.repeats or (self.index == 0 and self._batch is None):
            self._iterator = None

    def _ended(self) -> None:
        self._iterator = None
        if self.index == 0:
            raise self._no_batch()
        self._last_epoch = 0 if self._skip else self.index
        self._is_over = True  # iterated again, a loader would start over, and draw for it

    def _begun(self) -> Iterator[Any]:
        """Begin a pass for steps; one that depends on where it began can be repeated elsewhere.

        That is a pass over a loader's own order, and one of workers, which have random states of
        their own: they are seeded as the pass begins.
        """
        if self.source.repeats and not self.source.has_workers:
            return self._rest()
        before = self._pass_to_repeat
        if before is None:
            self._pass_begun = {"from": self.index, "random": self._pass_random()}
            return self._rest()
        self._pass_begun = before
        # what the data keeps is that of the checkpoint, and what is left out here changed it then
        with (
            self._data_undone(held_in_run(self.source)),
            self._random_of_pass(before["random"]),
        ):
            start = before["from"] - self._resized_at if self.source.repeats else 0
            found = self.source.batches(self.epoch, start, skip=self._skip)
            for _ in range(self.index - self._resized_at - start):
                next(found, None)
        self._pass_to_repeat = None
        return found

    def _pass_random(self) -> Any:
        """The random states from which a loader draws its own order."""
        if self.source.repeats:
            return None
        process = RandomState(self._device)
        process.save()
        return process.state_dict(), [one.get_state() for one in self.source.generators]

    @contextmanager
    def _random_of_pass(self, states: Any) -> Generator[None]:
        """Context with the `_pass_random` of another process; those of this one come back."""
        if states is None:
            yield
            return
        here, there = RandomState(self._device), RandomState(self._device)
        here.save()
        there.load_state_dict(states[0])
        there.forget_device()  # an order and samples are drawn on the CPU
        there.restore()
        for one, state in zip(self.source.generators, states[1], strict=True):
            one.set_state(state)
        try:
            yield
        finally:
            here.restore()

    def _rest(self) -> Iterator[Any]:
        """Iterate over the rest of this epoch."""
        start = self.index - self._resized_at
        return self.source.batches(self.epoch, start, skip=self._skip)

    def _no_batch(self) -> DataError:
        return DataError(
            f"{self.source.name} gave no batch; an epoch needs at least one. An iterator that is "
            f"used up cannot be read again: give a DataLoader or a list"
        )
