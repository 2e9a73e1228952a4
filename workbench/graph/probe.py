"""Capture of the graph of a step that was going to run anyway."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from workbench.experiment.loop.probe import StepContext, StepProbe
from workbench.graph.backward.complete_record import with_gradients
from workbench.graph.capture.compiled_regions import watch_compiler
from workbench.graph.capture.record_builder import Origin
from workbench.graph.capture_graph import capture_graph
from workbench.graph.core.batch_size import batch_size
from workbench.graph.core.graph_root import root_of
from workbench.graph.core.model_names import weak_storages
from workbench.graph.core.walk import walk
from workbench.graph.forward.forward_trace import Trace

if TYPE_CHECKING:
    import torch

    from workbench.graph.backward.gradient_watch import GradientWatch
    from workbench.records import GraphRecord


class GraphProbe(StepProbe):
    """Attaches to the next step and returns the `GraphRecord` of its loss.

    Compiled regions are watched from outside only (see `workbench.graph.forward.forward_trace`), so
    a capture never makes Dynamo compile again. Module times of a run's very first step are not
    kept.

    Args:
        gradients: whether to watch the backward too.
    """

    kind: ClassVar[str] = "graph"
    feature = "graphs"

    def __init__(self, *, gradients: bool = True) -> None:
        self._gradients = gradients
        self._context: StepContext | None = None
        self._trace: Trace | None = None
        self._record: GraphRecord | None = None
        self._watch: GradientWatch | None = None

    def before_step(self, context: StepContext) -> None:
        """Remember the step that runs."""
        self._context = context

    def before_forward(self) -> None:
        """Start watching the forward."""
        if self._context is not None:
            watch_compiler()
            self._trace = Trace({"": self._context.model})
            self._trace.start()

    def after_forward(self, loss: torch.Tensor) -> None:
        """Snapshot the whole graph while its saved tensors exist."""
        context, trace = self._context, self._trace
        if context is None or trace is None:
            return
        watched = trace.stop()
        if context.step == 1:  # caches are warmed up: its times are not those of other steps
            watched = dataclasses.replace(watched, forward_s=())
        batch = tuple(weak_storages(context.batch))
        origin = Origin(
            models={"": context.model},
            trace=dataclasses.replace(watched, inputs=(*watched.inputs, *batch)),
            experiment=context.name,
            step=context.step,
        )
        self._record, self._watch = capture_graph(
            loss,
            walk(root_of(loss)),
            origin,
            gradients=self._gradients,
            num_samples=batch_size(context.batch),
        )

    def finish(self) -> GraphRecord:
        """Return the record; nothing else of the step is kept.

        Raises:
            RuntimeError: the step failed before it had a loss.
        """
        record, watch = self._record, self._watch
        if self._trace is not None:
            self._trace.stop()
        self._context = self._trace = self._record = self._watch = None
        if record is None:
            raise RuntimeError(
                "no graph was captured: the step ended before its loss was computed; capture again "
                "once a step runs through"
            )
        if watch is None:
            return record
        watch.stop()
        return with_gradients(record, watch)
