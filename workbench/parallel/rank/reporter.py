"""What rank 0 reports while it trains."""

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


class Reporter:
    """Writes messages about a training, on the rank that reports.

    Args:
        training: the training that is reported.
        events: where messages are written; None: another rank reports, and this one does not.
    """

    def __init__(self, training: Training, events: Writer | None) -> None:
        self._training = training
        self._events = events
        self._reported_at = time.monotonic()
        self._num_notes = 0
        """Number of its notes that have been reported."""
        self._steps: list[tuple[int, float, int]] = []
        """(step, seconds, samples of all ranks) since the last reported position."""
        if self._events is not None:
            training.scalars.add_sink(self._scalars)
            training.board.subscribe(self._epoch)

    def report(self, kind: str, **message: object) -> None:
        """Report something, after all scalars until now."""
        if self._events is not None:
            self._training.scalars.flush()
            self._write({"type": kind, **message})

    @contextmanager
    def at_work(self, what: str) -> Generator[None]:
        """Report at intervals, while inside, that work continues: nothing else is reported then.

        Args:
            what: what the rank does, such as ``saves a checkpoint``.
        """
        if self._events is None:
            yield
            return
        done, begun = threading.Event(), time.monotonic()

        def report() -> None:
            while not done.wait(_AT_WORK_S):
                seconds = time.monotonic() - begun
                self._write({"type": "at-work", "what": what, "seconds": seconds})

        thread = threading.Thread(target=report, name="workbench: still at work", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def step(self, seconds: float, samples: int, num_executed: int) -> None:
        """Count a finished step; the position is reported at intervals."""
        self._training.measures.count(samples)
        if self._events is None:
            return
        self._steps.append((self._training.step_count, seconds, samples))
        if time.monotonic() - self._reported_at > _EVERY_S:
            self.position(num_executed)

    def notes(self) -> None:
        """Report the notes that are new."""
        notes = self._training.board.notes
        if self._events is not None and (new := notes[self._num_notes :]):
            self._num_notes = len(notes)
            self.report("notes", notes=new)

    def position(self, num_executed: int) -> None:
        """Report where the training is; ``num_executed`` is the number of commands executed."""
        if self._events is None:
            return
        training = self._training
        measures = training.measures
        self._reported_at = time.monotonic()
        measures.measure_speed(time.perf_counter())
        steps, self._steps = self._steps, []
        self.notes()
        if training.scaler is not None:
            for name, value in training.scaler.scalars().items():
                training.scalars.add(name, training.step_count, value)
        self.report(
            "position",
            step=training.step_count,
            position=training.cursor.position(),
            commands=num_executed,
            rate=training.learning_rate,
            speed=[measures.steps_per_s, measures.samples_per_s],
            steps=steps,
        )

    def _epoch(self, event: Event) -> None:
        if not isinstance(event, EpochDone):
            return
        training = self._training
        found = None if training.val is None else training.last_validation
        self.report(
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
