"""``wb.graph``: one function for a loss, an experiment, a model or a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, overload

import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.gradient_flow.log import flow_source
from workbench.graph.capture.caller_variables import caller_variables, held_tensors, models_of
from workbench.graph.capture.compiled_regions import watch_compiler
from workbench.graph.capture.record_builder import Origin
from workbench.graph.capture_graph import capture_graph
from workbench.graph.core.walk import walk
from workbench.graph.diff.view import GraphDiffView
from workbench.graph.forward.loss_scale import held_scalers, scale_notes, unscaled
from workbench.graph.probe import GraphProbe
from workbench.graph.view import GraphView
from workbench.graph.with_block import TracedGraph, trace_of
from workbench.records import GradientFlow, GraphDiff, GraphRecord, RecordError
from workbench.records.file import check_size, named_file, read_record_file
from workbench.torch_private.self_check import notes_of


@overload
def graph(target: nn.Module, *, model: None = None, gradients: bool = True) -> TracedGraph: ...
@overload
def graph(  # pyright: ignore[reportOverlappingOverload] - a diff is no GraphView
    target: GraphDiff, *, model: None = None, gradients: bool = True
) -> GraphDiffView: ...
@overload
def graph(
    target: Any = None, *, model: nn.Module | None = None, gradients: bool = True
) -> GraphView: ...
def graph(
    target: Any = None, *, model: nn.Module | None = None, gradients: bool = True
) -> GraphView | GraphDiffView:
    """Show the autograd graph of a live loss.

    Args:
        target: a loss tensor; an `Experiment`, for its next step (one step is run if it is idle); a
            module, for ``with wb.graph(model):`` around a forward in your own loop, which adds
            source lines and exact modules; a `GraphRecord`, a `GraphDiff`, or the path of a saved
            one.
        model: the module that gives the loss's parameters their names. Without it, modules are
            searched for in the caller's variables.
        gradients: whether to measure the gradient of every node in the backward that follows. This
            puts a hook on each node until then; with False the graph is left untouched.

    Returns:
        A view with ``.record``, ``.save(path)``, ``.figure()`` and a rich display. The record
        contains only numbers and names, so it keeps no activation alive. It contains gradients once
        the loss has run backward.

    Raises:
        NoGraphError: the target is a tensor without ``grad_fn``; the message says why and what to
            do.
        TypeError: the target is none of these.
        FileNotFoundError: there is no file at the path.
        RecordError: the file contains no graph record.
        MissingInTorchError: this torch lacks a private name without which no graph can be captured.
    """
    watch_compiler()
    given: Any = model  # notebooks are not type-checked
    if given is not None and not isinstance(given, nn.Module):
        raise TypeError(f"model= takes an nn.Module, got {type(given).__name__}")
    if isinstance(target, torch.Tensor):
        return _of_loss(target, model, gradients=gradients)
    if isinstance(target, nn.Module):
        return TracedGraph(target, gradients=gradients)
    if target is None and model is not None:
        return TracedGraph(model, gradients=gradients)
    if isinstance(target, (str, Path)):
        target = open_file(target)
    if isinstance(target, GraphDiff):
        return GraphDiffView(target)
    if isinstance(target, GraphRecord):
        return GraphView(target)
    capture: Any = getattr(target, "capture", None)
    if callable(capture):
        record = cast(Any, capture(GraphProbe(gradients=gradients))).wait()
        return GraphView(record, flow=_flow_of(target))
    raise TypeError(
        f"graph() got {type(target).__name__}; it takes a loss tensor, an Experiment, a module (as "
        "a `with` block around its forward), a GraphRecord, or the path of a saved one"
    )


def _flow_of(target: object) -> Callable[[], GradientFlow] | None:
    """A function that returns an experiment's gradient flow; keeps no experiment alive."""
    return flow_source(target) if isinstance(target, Experiment) else None


def _of_loss(loss: torch.Tensor, model: nn.Module | None, *, gradients: bool) -> GraphView:
    notes_of("graphs")
    variables = caller_variables()
    scalers = held_scalers(variables)
    root, loss, scale = unscaled(loss, (), scalers)
    live = walk(root)
    models = None if model is None else {"": model}
    traced = trace_of(live, models)
    if models is None and traced is not None:
        traced_model = traced.model()
        models = None if traced_model is None else {"": traced_model}
    if models is None:
        models = models_of(live, variables)
    inputs, leaves = held_tensors(variables)
    origin = Origin(models, traced.result if traced is not None else None, inputs, leaves)
    notes = scale_notes(live) if scale is None else ()
    captured = capture_graph(
        loss, live, origin, gradients=gradients, scale=scale, scalers=scalers, notes=notes
    )
    return GraphView(*captured)


def open_file(path: str | Path) -> GraphRecord:
    """Read the record in a file written by ``view.save``.

    Raises:
        FileNotFoundError: there is no file at ``path``.
        RecordError: the file contains something else.
    """
    with named_file(path, "a graph") as file:
        check_size(file)
        try:
            return read_record_file(file, GraphRecord)
        except RecordError as error:
            raise RecordError(f"{file.name} holds no graph record: {error}") from None
