"""What of an experiment goes to TensorBoard.

All scalars come through the `ScalarLog` as they are flushed, on the pulse thread. Events add what
is no scalar: a text that says what runs, its hyper-parameters, each change of modes, and a
confusion matrix per epoch. Events arrive on the training thread, so only plain values are taken
there; texts and pictures are made on the writer thread.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.experiment.events import (
    EpochDone,
    Event,
    LearningRateChanged,
    ModelSwapped,
    ModesChanged,
    RunStarted,
    StatusChanged,
)
from workbench.metrics.writer import EventWriter

if TYPE_CHECKING:
    from workbench.experiment import Experiment

_DRAWING_SHARE = 0.05
"""Of the time, at most this much is spent drawing confusion matrices; skipped epochs' are not
drawn, the last one always is."""


def attach(experiment: Experiment) -> Callable[[], None]:
    """Write ``experiment`` to event files in its run directory; returns what ends it.

    The experiment is not kept alive: when it goes, so does the writer's thread.
    """
    return TensorBoardObserver(experiment).detach


class TensorBoardObserver:
    """Follows one experiment and writes it to its run directory."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = weakref.ref(experiment)
        self.writer = EventWriter(Path(experiment.path), on_drop=self._tell_dropped)
        self._confusion = _Confusion(self.writer)
        self._described = False
        self._ends = [
            experiment.subscribe(self.on_event),
            experiment.scalars.add_sink(self.writer.write),
        ]
        weakref.finalize(experiment, self.writer.finish)

    def detach(self) -> None:
        """Stop following, and write what waits (at most 5 s)."""
        for end in self._ends:
            end()
        self._ends.clear()
        self.writer.close()

    def on_event(self, event: Event) -> None:
        """Take what TensorBoard shows from ``event``; called on the training thread."""
        if isinstance(event, RunStarted):
            self.writer.start()
            self._describe(event.step)
        elif isinstance(event, EpochDone) and event.confusion is not None:
            self._confusion.add(event.step, event.epoch, event.confusion.numpy().copy())
        elif isinstance(event, StatusChanged) and event.status != "training":
            self._settle(event)
        elif (line := _line(event)) is not None:
            self._text("changes", event.step, line)

    def _settle(self, event: StatusChanged) -> None:
        self._confusion.draw_last()
        if event.failure is not None:
            self._text("changes", event.step, event.failure.title)
        if event.status != "paused":
            self.writer.finish()

    def _describe(self, step: int) -> None:
        """Hyper-parameters once, the table of what runs at every start."""
        experiment = self._experiment()
        if experiment is None:
            return
        from workbench.metrics import describe

        rows = describe.run_rows(experiment)
        self.writer.summary(step, lambda: describe.text_summary("run", describe.table(rows)))
        if self._described:
            return
        self._described = True
        parameters = describe.hyper_parameters(experiment)
        for part in range(3):
            self.writer.summary(0, lambda part=part: describe.hparams_summaries(parameters)[part])

    def _text(self, tag: str, step: int, line: str) -> None:
        from workbench.metrics import describe

        self.writer.summary(
            step, lambda: describe.text_summary(tag, describe.table([(f"step {step}", line)]))
        )

    def _tell_dropped(self, dropped: int) -> None:
        experiment = self._experiment()
        if experiment is not None:
            experiment.dropped_points = dropped


def _line(event: Event) -> str | None:
    if isinstance(event, ModesChanged):
        return f"modes {event.before} → {event.after}"
    if isinstance(event, LearningRateChanged):
        return f"learning rate {event.value:.3g}"
    if isinstance(event, ModelSwapped):
        carried = sum(row.outcome == "carried" for row in event.rows)
        return f"model swapped, {carried} of {len(event.rows)} parameters carried over"
    return None


class _Confusion:
    """Draws confusion matrices, but not so often that drawing would be felt."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._last: tuple[int, int, npt.NDArray[np.int64]] | None = None
        self._not_before = 0.0

    def add(self, step: int, epoch: int, counts: npt.NDArray[np.int64]) -> None:
        self._last = (step, epoch, counts)
        if time.monotonic() >= self._not_before:
            self.draw_last()

    def draw_last(self) -> None:
        """Queue the latest matrix that was not drawn yet."""
        if self._last is None:
            return
        (step, epoch, counts), self._last = self._last, None
        self._not_before = float("inf")  # until this one is done
        self._writer.summary(step, lambda: self._draw(epoch, counts))

    def _draw(self, epoch: int, counts: npt.NDArray[np.int64]) -> Any:
        from workbench.metrics.confusion import accuracy_title, draw_confusion
        from workbench.metrics.protos import image_summary

        start = time.monotonic()
        try:
            png, size = draw_confusion(counts, accuracy_title(counts, epoch))
            return image_summary("val/confusion_matrix", png, size)
        finally:
            now = time.monotonic()
            self._not_before = now + (now - start) / _DRAWING_SHARE
