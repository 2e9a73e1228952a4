"""A graph record on screen: interactive where widgets run, a picture and text everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.display import mime_bundle, send_bundle
from workbench.graph.backward.complete_record import with_gradients
from workbench.graph.capture.saved_tensors import FREED, holders
from workbench.graph.core.number_format import heading, summary
from workbench.graph.diff.view import diff
from workbench.graph.questions.checkpoint_savings import checkpoint_saving
from workbench.graph.questions.why_no_gradient import why_no_gradient
from workbench.graph.render.export import save
from workbench.graph.render.figure import graph_figure
from workbench.graph.render.svg import graph_html
from workbench.graph.render.text import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from workbench.graph.backward.gradient_watch import GradientWatch
    from workbench.graph.capture.saved_tensors import HeldStorage
    from workbench.graph.diff.view import GraphDiffView
    from workbench.graph.questions.checkpoint_savings import CheckpointSaving
    from workbench.records import GradientFlow, GraphNode, GraphRecord, Unreached


class GraphView:
    """The result of `workbench.graph`, for display: ``.record``, ``.save(path)``, ``.figure()``.

    Args:
        record: the record to show; None until there is one.
        watch: watch of the backward of the same graph, if that is still to come; its gradients are
            in the record once it has run.
        flow: returns the gradient flow of the training that the graph comes from. It is shown below
            the graph, as it is when the view is displayed.
    """

    def __init__(
        self,
        record: GraphRecord | None,
        watch: GradientWatch | None = None,
        *,
        flow: Callable[[], GradientFlow] | None = None,
    ) -> None:
        self._record = record
        self._watch = watch
        self._flow = flow

    @property
    def has_record(self) -> bool:
        """Whether there is a graph to show yet."""
        return self._record is not None

    @property
    def record(self) -> GraphRecord:
        """The record; it contains gradients once its loss has run backward.

        Raises:
            RuntimeError: no loss has been captured yet.
        """
        record = self._latest()
        if record is None:
            raise RuntimeError(
                "no graph is captured yet: call loss.backward() inside the `with wb.graph(model):` "
                "block, or wb.graph(loss) after it"
            )
        return record

    def save(self, path: str | Path) -> Path:
        """Write the graph in the format given by the suffix and return the path.

        ``.safetensors`` is the record, which ``wb.graph(path)`` opens again; ``.svg``, ``.png`` and
        ``.pdf`` are pictures; ``.dot`` is for Graphviz and ``.json`` for Model Explorer.

        Raises:
            ValueError: the suffix is another one; the message lists the known suffixes.
        """
        return save(self.record, path)

    def diff(self, other: GraphView | GraphRecord) -> GraphDiffView:
        """Show what changed from this capture to ``other``."""
        return diff(self.record, other)

    def why_no_gradient(self, parameter: str) -> Unreached | str:
        """Explain why ``parameter`` gets no gradient from this loss, or say that it gets one."""
        return why_no_gradient(self.record, parameter)

    def holders(self, node: int | GraphNode | str) -> tuple[HeldStorage, ...]:
        """Storages that a node, or a module by its path, holds for backward, and other holders."""
        return holders(self.record, node)

    def checkpoint_saving(self, module: str) -> CheckpointSaving:
        """Estimate what activation checkpointing of a module would free, from this capture."""
        return checkpoint_saving(self.record, module)

    def figure(self) -> Figure:
        """The static picture as a matplotlib figure."""
        return graph_figure(self.record)

    def show(self, record: GraphRecord, watch: GradientWatch | None = None) -> None:
        """Show ``record`` from now on, with the gradients of the backward of ``watch``."""
        self._record, self._watch = record, watch

    def _latest(self) -> GraphRecord | None:
        watch = self._watch
        if self._record is None or watch is None:
            return self._record
        if not watch.done:  # not begun, or ended by an error: there may be another
            return with_gradients(self._record, watch)
        self._record, self._watch = with_gradients(self._record, watch), None
        return self._record

    def _awaited(self) -> str:
        """Sentence about what the view still lacks, or ``""``."""
        if self._record is None or self._watch is None or self._watch.begun:
            return ""
        if FREED in self._record.notes:  # a backward ran before the capture
            return ""
        return "No gradients yet: they are here once backward() of this loss has run."

    def __str__(self) -> str:
        record = self._latest()
        if record is None:
            return "Graph, no loss captured yet."
        awaited = self._awaited()
        return describe(record) + (f"\n\n{awaited}" if awaited else "")

    def __repr__(self) -> str:
        record = self._latest()
        if record is None:
            return str(self)
        awaited = "; no gradients yet" if self._awaited() else ""
        return f"{heading(record)}; {summary(record)}{awaited}"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Widget, static SVG and text; only the last two where no widget can run."""
        record = self._latest()
        if record is None:
            return {"text/plain": str(self)}, {}
        return mime_bundle(
            "graph",
            {"record": record.to_bytes(), "error": "", "flow": self._flow_bytes()},
            text=str(self),
            html=graph_html(record),
            options=options,
            on_message=_on_message,
        )

    def _flow_bytes(self) -> bytes:
        """The gradient flow so far; empty where one step, or none, was sampled."""
        flow = None if self._flow is None else self._flow()
        return b"" if flow is None or len(flow.step) < 2 else flow.to_bytes()


def _on_message(widget: Any, content: Any) -> None:
    """Send the heat map below the graph when the widget requests it; most graphs do not need it."""
    if isinstance(content, dict) and content.get("type") == "module":
        send_bundle(widget, str(content.get("name")), {"flow"})
