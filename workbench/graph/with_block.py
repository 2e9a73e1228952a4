"""``with wb.graph(model):`` around a forward in the user's own loop."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from workbench.graph.capture.caller_variables import caller_variables, held_tensors, models_of, uses
from workbench.graph.capture.record_builder import Origin
from workbench.graph.capture_graph import capture_graph
from workbench.graph.core.graph_root import NoGraphError
from workbench.graph.core.module_owners import owners_by_sequence
from workbench.graph.core.number_format import plural
from workbench.graph.core.walk import walk
from workbench.graph.forward.forward_trace import Trace, TraceResult
from workbench.graph.forward.loss_scale import held_scalers, scale_notes, unscaled
from workbench.graph.view import GraphView
from workbench.torch_private.autograd import node_sequence
from workbench.torch_private.self_check import notes_of

if TYPE_CHECKING:
    from torch import nn

    from workbench.graph.core.walk import Walk
    from workbench.graph.forward.function_mode import BackwardCall
    from workbench.records import GraphRecord


@dataclass(frozen=True)
class Traced:
    """A trace that ended, and its model while that lives."""

    result: TraceResult
    model: weakref.ref[nn.Module]


_FROM_EDGES = "it began at a GradientEdge, which has no value to show; give backward the tensor"

_ended: deque[Traced] = deque(maxlen=8)
"""Ended traces, so that ``wb.graph(loss)`` after a block finds what the block recorded."""
_running: dict[int, TracedGraph] = {}
"""Thread -> the block that thread is in."""


class TracedGraph(GraphView):
    """Watches the forwards of ``model`` in a block, and captures the first loss that runs backward.

    ``loss.backward()`` and ``torch.autograd.backward(loss)`` count alike. What is passed to
    `torch.autograd.grad` is captured too, until one of these follows: a gradient penalty takes the
    gradients of a part of the loss first.

    ``wb.graph(loss)``, in the block or after it, shows any loss made in it with its source lines.

    Args:
        model: the module whose forwards to watch.
        gradients: whether to watch that backward too.
    """

    def __init__(self, model: nn.Module, *, gradients: bool = True) -> None:
        super().__init__(None)
        self._gradients = gradients
        self._model: nn.Module | None = model
        self._ref = weakref.ref(model)
        self._trace: Trace | None = None
        self._thread = 0
        self._fault = ""
        """Why the backward could not be captured."""
        self._ended = ""
        """How the block ended."""
        self._is_final = False
        """Whether the record is of a backward, not of `torch.autograd.grad`."""

    def __enter__(self) -> Self:
        if self._model is None:
            raise RuntimeError(
                "this graph block has been used already; write `with wb.graph(model):` for a new "
                "one"
            )
        thread = threading.get_ident()
        if thread in _running:
            raise RuntimeError(
                "a graph is being traced on this thread already: blocks do not nest; end the outer "
                "`with wb.graph(...)` first"
            )
        notes_of("graphs")
        trace = Trace({"": self._model}, on_backward=self._capture)
        trace.start()
        self._trace, self._thread = trace, thread
        _running[thread] = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._trace is not None:
            _running.pop(self._thread, None)
            _ended.append(Traced(self._trace.stop(), self._ref))
            self._ended = "" if kind is None else kind.__name__
        self._trace = self._model = None

    @property
    def record(self) -> GraphRecord:
        """The record; it contains gradients once its loss has run backward.

        Raises:
            RuntimeError: no loss has been captured, or capturing it failed.
        """
        if self._fault and not self.has_record:
            raise RuntimeError(self._failed())
        return super().record

    def __str__(self) -> str:
        if self.has_record or self._model is not None:
            return super().__str__()
        if self._fault:
            return self._failed()
        if self._ended:
            return f"Graph: the block ended with {self._ended} before a loss ran backward."
        return (
            "Graph: no loss was seen to run backward in the block; call loss.backward() inside it, "
            "or wb.graph(loss) after it. (A backward that begins at a GradientEdge torch does not "
            "show.)"
        )

    def _failed(self) -> str:
        return f"this backward ran, but its graph could not be captured ({self._fault})"

    def so_far(self) -> Traced | None:
        """The trace so far, while the block runs."""
        return None if self._trace is None else Traced(self._trace.result(), self._ref)

    def _capture(self, backward: BackwardCall) -> None:
        """Capture the graph when a backward starts, before it frees what was saved."""
        if self._trace is None or self._model is None:
            return
        if not backward.roots:
            if backward.num_edges:
                self._fault = _FROM_EDGES
            return
        if self._is_final or (backward.is_grad and self.has_record):
            self._trace.release()
            return
        try:
            self._take(self._model, self._trace, backward)
        except NoGraphError:
            pass  # backward itself will report it to the user
        except Exception as error:  # noqa: BLE001 - the user's backward goes on
            self._fault = f"{type(error).__name__}: {error}"

    def _take(self, model: nn.Module, trace: Trace, backward: BackwardCall) -> None:
        seen, products, variables = trace.result(), trace.products(), caller_variables()
        root, loss, scale = unscaled(backward.roots[0], products, held_scalers(variables))
        graph = walk(root)
        self._is_final = not backward.is_grad
        inputs, leaves = held_tensors(variables)
        models, seen = _models_and_trace(model, seen, graph, variables)
        origin = Origin(models, seen, inputs, leaves)
        notes = [_of_several(backward)] if len(backward.roots) + backward.num_edges > 1 else []
        if scale is None:
            notes += scale_notes(graph, products)
        captured = capture_graph(
            loss, graph, origin, gradients=self._gradients, scale=scale, notes=notes
        )
        self.show(*captured)


def _models_and_trace(
    model: nn.Module, seen: TraceResult, graph: Walk, variables: Mapping[str, Any]
) -> tuple[Mapping[str, nn.Module], TraceResult]:
    """The traced model, or the models of the loss if ``graph`` has nothing of it (a GAN, say)."""
    inside = owners_by_sequence(graph.sequence, seen.owner_at, seen.owner) >= 0
    if inside.any() or uses(graph, model):
        return {"": model}, seen
    found = models_of(graph, variables)
    return (found, seen.lines_alone()) if found else ({"": model}, seen)


def _of_several(backward: BackwardCall) -> str:
    began = plural(len(backward.roots), "tensor")
    if backward.num_edges:
        began = f"{began} and {plural(backward.num_edges, 'GradientEdge')}"
    return (
        f"Backward began at {began} together; this is the graph of the first tensor, and its "
        "gradients are the sum of what all of them gave."
    )


def trace_of(graph: Walk, models: Mapping[str, nn.Module] | None) -> Traced | None:
    """The trace in which the last node of ``graph`` was made, if there was one.

    Numbers repeat across threads, so the graph must also use a parameter of the traced model.

    Args:
        graph: the graph of a loss.
        models: if given, only a trace of one of these counts.
    """
    number = node_sequence(graph.nodes[-1])
    running = _running.get(threading.get_ident())
    now = running.so_far() if running is not None else None
    for traced in ([now] if now is not None else []) + list(reversed(_ended)):
        model = traced.model()
        if model is None or not traced.result.first <= number < traced.result.last:
            continue
        if models is not None and all(model is not wanted for wanted in models.values()):
            continue
        if uses(graph, model):
            return traced
    return None
