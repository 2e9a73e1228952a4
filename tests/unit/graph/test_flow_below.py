"""The gradient flow that a graph of an experiment brings along, for the heat map below it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from workbench import display
from workbench.experiment import Experiment
from workbench.experiment.loop import measures
from workbench.graph import GraphView, graph
from workbench.graph.view import _on_message
from workbench.records import GradientFlow


class Sent:
    """A widget that keeps what it is made with and what it sends."""

    def __init__(self, **traits: Any) -> None:
        self.traits = traits
        self.messages: list[tuple[Any, Any]] = []

    def send(self, content: Any, buffers: Any) -> None:
        self.messages.append((content, buffers))

    def on_msg(self, _callback: Any) -> None: ...

    def _repr_mimebundle_(self, **_options: Any) -> Any:
        return {}, {}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Sent]:
    widgets: list[Sent] = []

    def make(**traits: Any) -> Sent:
        widgets.append(Sent(**traits))
        return widgets[-1]

    monkeypatch.setattr(display, "_widget_class", lambda *_: make)
    monkeypatch.setattr(display, "someone_is_looking", lambda: True)
    return widgets


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "static"
    folder.mkdir()
    for name in ("graph.js", "flow.js", "flow.css"):
        (folder / name).write_text(name)
    monkeypatch.setattr(display, "STATIC", folder)
    return folder


def trained(folder: Path) -> Experiment:
    data = torch.randn(32, 4), torch.arange(32) % 2
    return Experiment(nn.Linear(4, 2), data, name="small", runs=folder, device="cpu")


@pytest.mark.usefixtures("built")
def test_the_graph_of_an_experiment_carries_what_was_sampled_until_it_is_shown(
    tmp_path: Path, made: list[Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "EVERY", 1)
    exp = trained(tmp_path)
    view = graph(exp)  # runs one step
    view._repr_mimebundle_()
    assert made[-1].traits["flow"] == b""
    for _ in range(2):
        exp.run(steps=1, wait=True)
    view._repr_mimebundle_()
    flow = GradientFlow.from_bytes(made[-1].traits["flow"])
    assert flow.experiment == exp.id
    assert 2 <= flow.step[-1] <= exp.step_count
    exp.close()


@pytest.mark.usefixtures("built")
def test_any_other_graph_carries_none(made: list[Sent]) -> None:
    view: GraphView = graph((torch.ones(2, requires_grad=True) * 2).sum())
    view._repr_mimebundle_()
    assert made[-1].traits["flow"] == b""


def test_the_view_keeps_no_experiment_alive(tmp_path: Path) -> None:
    exp = trained(tmp_path)
    view = graph(exp)
    gone = weakref.ref(exp)
    exp.close()
    del exp
    gc.collect()
    assert gone() is None
    assert view.record.step == 1


@pytest.mark.usefixtures("built")
def test_a_widget_is_sent_the_strip_and_nothing_else() -> None:
    widget = Sent()
    for content in ({"type": "module", "name": "flow"}, {"type": "module", "name": "../x"}, 3):
        _on_message(widget, content)
    assert widget.messages == [
        ({"type": "module", "name": "flow"}, [b"flow.js", b"flow.css"]),
        ({"type": "module", "name": "../x"}, None),
    ]
