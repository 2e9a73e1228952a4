"""Transfer of an experiment's metrics to TensorBoard.

All scalars arrive through the `ScalarLog` as they are flushed, on the pulse thread. Events add what
is not a scalar: a text about what runs, its hyper-parameters, each change of modes, and per
epoch a confusion matrix and a picture of the gradient flow. Events arrive on the training thread,
so only plain values are read there; texts are made on the writer thread, pictures on a thread of
their own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.experiment.report.events import (
    Closed,
    EpochDone,
    Event,
    LearningRateChanged,
    ModelSwapped,
    ModesChanged,
    PictureLogged,
    Resumed,
    RunStarted,
    ScheduleRemoved,
    StatusChanged,
    TextLogged,
)
from workbench.gradient_flow.log import flow_source
from workbench.metrics.confusion_picture import accuracy_title, draw_confusion
from workbench.metrics.gradient_flow_picture import draw_flow
from workbench.metrics.pictures import Pictures
from workbench.metrics.writer import EventWriter

if TYPE_CHECKING:
    from workbench.experiment import Experiment

_SETTLED_S = 10.0
"""A run shorter than this (seconds) gets one picture of its gradient flow, when it is over:
importing matplotlib alone would slow all of it."""


def attach(experiment: Experiment) -> Callable[[], None]:
    """Write ``experiment`` to event files in its run directory; returns a function that ends it.

    The experiment is not kept alive: when it is freed, the writer's thread ends.
    """
    return TensorBoardObserver(experiment).detach


class TensorBoardObserver:
    """Follows one experiment and writes its metrics to its run directory."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = weakref.ref(experiment)
        self.writer = EventWriter(
            Path(experiment.path), on_drop=self._report_dropped, on_removed=self._report_removed
        )
        self._confusion = Pictures(self.writer, "val/confusion_matrix")
        self._flow = Pictures(self.writer, "train/gradient_flow")
        self._described = False
        self._ends = [
            experiment.subscribe(self.on_event),
            experiment.scalars.add_sink(self.writer.write, flush=self.writer.flush_points),
        ]
        weakref.finalize(experiment, self.writer.finish)

    def detach(self) -> None:
        """Stop following, and write what is queued; waits for a failing disk for at most 5 s."""
        for end in self._ends:
            end()
        self._ends.clear()
        self.writer.close()

    def on_event(self, event: Event) -> None:
        """Read what TensorBoard shows from ``event``; called on the training thread."""
        if isinstance(event, RunStarted):
            self.writer.start()
            self._flow.hold(_SETTLED_S)
            self._describe(event.step)
        elif isinstance(event, Resumed):
            self._described = self.writer.move(event.folder)
        elif isinstance(event, EpochDone):
            self._epoch_done(event)
        elif isinstance(event, StatusChanged) and event.status != "training":
            self._settle(event)
        elif isinstance(event, Closed):
            self.detach()
        elif isinstance(event, PictureLogged):
            self.writer.picture(event.step, partial(_image, event))
        elif isinstance(event, TextLogged):
            self.writer.summary(event.step, partial(_text, event))
        elif (line := _line(event)) is not None:
            self._text("changes", event.step, line)

    def _epoch_done(self, event: EpochDone) -> None:
        self._offer_flow(event.step)
        if event.confusion is not None:
            counts = event.confusion.numpy().copy()
            title = accuracy_title(counts, event.epoch)
            self._confusion.offer(event.step, partial(draw_confusion, counts, title))

    def _offer_flow(self, step: int) -> None:
        experiment = self._experiment()
        if experiment is not None:
            source = flow_source(experiment)
            self._flow.offer(step, lambda: draw_flow(source()))

    def _settle(self, event: StatusChanged) -> None:
        self._confusion.draw_last()
        if event.status != "paused" and event.step:
            # the step that failed is sampled too
            self._offer_flow(event.step + (event.failure is not None))
        self._flow.draw_last()
        if event.failure is not None:
            self._text("changes", event.step, event.failure.title)
        if event.status != "paused":
            self.writer.finish()

    def _describe(self, step: int) -> None:
        """Write the hyper-parameters once, and the table of what runs at every start."""
        experiment = self._experiment()
        if experiment is None:
            return
        from workbench.metrics import run_description

        rows = run_description.run_rows(experiment)
        self.writer.summary(
            step, lambda: run_description.text_summary("run", run_description.table(rows))
        )
        if self._described:
            return
        self._described = True
        parameters = run_description.hyper_parameters(experiment)
        for part in range(3):
            self.writer.summary(
                0, lambda part=part: run_description.hparams_summaries(parameters)[part]
            )

    def _text(self, tag: str, step: int, line: str) -> None:
        from workbench.metrics import run_description

        self.writer.summary(
            step,
            lambda: run_description.text_summary(
                tag, run_description.table([(f"step {step:,}", line)])
            ),
        )

    def _report_dropped(self, dropped: int) -> None:
        experiment = self._experiment()
        if experiment is not None:
            experiment.dropped_points = dropped

    def _report_removed(self) -> None:
        experiment = self._experiment()
        if experiment is not None:
            note = (
                f"files of this run were removed from {self.writer.folder} while it was open: "
                "TensorBoard shows nothing from before; run.metrics has everything"
            )
            if note not in experiment.notes:
                experiment.notes.append(note)


def _image(event: PictureLogged) -> Any:
    from workbench.metrics.tensorboard_messages import image_summary

    return image_summary(event.name, *event.draw())


def _text(event: TextLogged) -> Any:
    from workbench.metrics.run_description import text_summary

    return text_summary(event.name, event.text)


def _line(event: Event) -> str | None:
    if isinstance(event, ModesChanged):
        return f"modes {event.before} → {event.after}"
    if isinstance(event, LearningRateChanged):
        return f"learning rate {event.value:.3g}"
    if isinstance(event, ScheduleRemoved):
        return f"learning rate {event.value:.3g}, constant in the place of {event.name}"
    if isinstance(event, ModelSwapped):
        carried = sum(row.outcome == "carried" for row in event.rows)
        return f"model swapped, {carried:,} of {len(event.rows):,} parameters carried over"
    return None
