"""The command `export`: what a browser is sent of a capture besides its record."""

from __future__ import annotations

import json
import queue
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from workbench.panel.assembly import Experiment
from workbench.panel.channel import background_work, exports
from workbench.panel.channel.commands import CommandError, execute
from workbench.panel.channel.graph_comparison import compare
from workbench.panel.channel.hub import Hub

SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-", "dot": b"digraph"}


class Page:
    """A browser page: keeps what it is sent."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, Any], bytes]] = []
        self._more = threading.Condition()

    def __call__(self, data: dict[str, Any], buffers: Sequence[bytes] | None) -> None:
        with self._more:
            self.received.append((data, buffers[0] if buffers else b""))
            self._more.notify_all()

    def until(self, found: Callable[[dict[str, Any]], bool]) -> tuple[dict[str, Any], bytes]:
        def wanted() -> list[tuple[dict[str, Any], bytes]]:
            return [message for message in self.received if found(message[0])]

        with self._more:
            assert self._more.wait_for(wanted, 600), [data["type"] for data, _ in self.received]
            return wanted()[0]


def ask(hub: Hub, experiment: Experiment, request: str, **args: object) -> None:
    message = {"type": "command", "id": request, "experiment": experiment.id}
    hub.receive("page", {**message, "name": "export", "args": args})


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    x, y = torch.randn(64, 8), torch.randint(0, 3, (64,))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    runs = tmp_path_factory.mktemp("runs")
    experiment = Experiment(model, (x, y), batch_size=32, name="exported", runs=runs)
    for _ in range(2):
        execute(experiment, "capture", {"what": "both"})
        experiment.wait(120)
    graphs = [info.id for info in experiment.captures.infos() if info.kind == "graph"]
    compare(experiment, {"a": graphs[1], "b": graphs[0]}).make()
    return experiment


def newest(experiment: Experiment, kind: str) -> str:
    return next(info.id for info in experiment.captures.infos() if info.kind == kind)


@pytest.mark.parametrize(
    ("kind", "form"), [(kind, form) for kind, forms in exports.FORMATS.items() for form in forms]
)
def test_every_form_of_every_kind_is_really_of_that_form(
    captured: Experiment, kind: str, form: str
) -> None:
    args = {"capture": newest(captured, kind), "format": form}
    data = exports.make(exports.requested(captured, args))
    if form == "svg":
        assert ET.fromstring(data).tag.endswith("svg")
    elif form == "json":
        assert json.loads(data)["graphs"]
    else:
        assert data.startswith(SIGNATURES[form])


def test_a_page_that_asks_is_sent_the_file_and_then_the_reply(captured: Experiment) -> None:
    hub, page = Hub(), Page()
    hub.add(captured)
    hub.connect("page", page)
    capture = newest(captured, "graph")
    ask(hub, captured, "one", capture=capture, format="dot")
    reply, _ = page.until(lambda message: message["type"] == "reply")
    file, data = page.until(lambda message: message["type"] == "file")
    assert (reply["id"], reply["ok"], reply["error"]) == ("one", True, "")
    assert (file["capture"], file["format"]) == (capture, "dot")
    assert (file["experiment"], data[:7]) == (captured.id, b"digraph")
    assert file["seq"] < reply["seq"]
    hub.disconnect("page")


def test_the_hub_answers_while_a_file_is_made(
    captured: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = threading.Event()

    def slow(_export: exports.Export) -> bytes:
        finish.wait(300)
        return b"made"

    monkeypatch.setattr(exports, "make", slow)
    hub, page = Hub(), Page()
    hub.add(captured)
    hub.connect("page", page)
    ask(hub, captured, "slow", capture=newest(captured, "graph"), format="pdf")
    hub.receive("page", {"type": "command", "id": "quick", "name": "stop", "experiment": "gone"})
    assert page.until(lambda message: message["type"] == "reply")[0]["id"] == "quick"
    finish.set()
    assert page.until(lambda message: message.get("id") == "slow")[0]["ok"]
    assert page.until(lambda message: message["type"] == "file")[1] == b"made"
    hub.disconnect("page")


@pytest.mark.parametrize(
    ("kind", "form", "sentence"),
    [
        ("graph", "docx", "a graph cannot be written as 'docx'; valid: svg, png, pdf, dot, json"),
        ("memory", "dot", "a memory cannot be written as 'dot'; valid: png, pdf"),
        ("graph", None, "a graph cannot be written as 'None'"),
        ("gone", "png", "this capture is no longer held"),
    ],
)
def test_what_cannot_be_made_is_refused(
    captured: Experiment, kind: str, form: Any, sentence: str
) -> None:
    capture = "gone" if kind == "gone" else newest(captured, kind)
    with pytest.raises(CommandError, match=sentence):
        exports.requested(captured, {"capture": capture, "format": form})


def test_what_is_too_large_or_fails_becomes_one_sentence(
    captured: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: queue.Queue[background_work.Done] = queue.Queue()
    task = exports.export(captured, {"capture": newest(captured, "graph"), "format": "json"})
    monkeypatch.setattr(exports, "MAX_BYTES", 100)
    background_work.start(task, "page", "one", captured.id, made.put)
    done = made.get(timeout=120)
    assert done.answer is None
    assert done.error.startswith("the JSON is 0 MiB and at most 0 MiB are sent to a browser")
