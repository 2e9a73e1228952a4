"""What rank 0 tells the outside while it trains."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workbench.experiment.report.events import EpochDone, Event
from workbench.parallel.exchange.stream import Message, Writer

if TYPE_CHECKING:
    from workbench.experiment.loop.scalars import Series
    from workbench.experiment.training import Training

_EVERY_S = 0.1
_AT_WORK_S = 5.0


class Teller:
    """Writes messages about a training, if it is the one who does.

    Args:
        training: of which is told.
        events: where to; None: another rank tells, and this one says nothing.
    """

    def __init__(self, training: Training, events: Writer | None) -> None:
        self._training = training
        self._events = events
        self._told = time.monotonic()
        self._num_notes = 0
        """How many of its notes have been told."""
        self._steps: list[tuple[int, float, int]] = []
        """(step, seconds, samples of all ranks) since the last position told."""
        if self._events is not None:
            training.scalars.add_sink(self._scalars)
            training.board.subscribe(self._epoch)

    def tell(self, kind: str, **message: object) -> None:
        """Tell something, and all scalars until now before it."""
        if self._events is not None:
            self._training.scalars.flush()
            self._write({"type": kind, **message})

    @contextmanager
    def at_work(self, what: str) -> Generator[None]:
        """While inside, tell now and then that it goes on: nothing else is told meanwhile.

        Args:
            what: ``saves a checkpoint``.
        """
        if self._events is None:
            yield
            return
        done, begun = threading.Event(), time.monotonic()

        def tell() -> None:
            while not done.wait(_AT_WORK_S):
                seconds = time.monotonic() - begun
                self._write({"type": "at-work", "what": what, "seconds": seconds})

        thread = threading.Thread(target=tell, name="workbench: still at work", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def step(self, seconds: float, samples: int, obeyed: int) -> None:
        """A step has gone through; the position is told now and then."""
        self._training.measures.count(samples)
        if self._events is None:
            return
        self._steps.append((self._training.step_count, seconds, samples))
        if time.monotonic() - self._told > _EVERY_S:
            self.position(obeyed)

    def notes(self) -> None:
        """Tell the notes that are new."""
        notes = self._training.board.notes
        if self._events is not None and (new := notes[self._num_notes :]):
            self._num_notes = len(notes)
            self.tell("notes", notes=new)

    def position(self, obeyed: int) -> None:
        """Tell where the training is; ``obeyed`` is how many commands were carried out."""
        if self._events is None:
            return
        training = self._training
        measures = training.measures
        self._told = time.monotonic()
        measures.measure_speed(time.perf_counter())
        steps, self._steps = self._steps, []
        self.notes()
        if training.scaler is not None:
            for name, value in training.scaler.scalars().items():
                training.scalars.add(name, training.step_count, value)
        self.tell(
            "position",
            step=training.step_count,
            position=training.cursor.position(),
            commands=obeyed,
            rate=training.learning_rate,
            speed=[measures.steps_per_s, measures.samples_per_s],
            steps=steps,
        )

    def _epoch(self, event: Event) -> None:
        if not isinstance(event, EpochDone):
            return
        training = self._training
        found = None if training.val is None else training.last_validation
        self.tell(
            "epoch",
            step=training.step_count,
            position=training.cursor.position(),
            validation=found and [found.loss, found.accuracy],
            confusion=None if event.confusion is None else event.confusion.tolist(),
        )

    def _scalars(self, batch: list[Series]) -> None:
        series = [[name, steps.tolist(), values.tolist()] for name, steps, values, _ in batch]
        self._write({"type": "scalars", "series": series})

    def _write(self, message: Message) -> None:
        if self._events is not None:
            self._events.write({**message, "time": time.time()})
