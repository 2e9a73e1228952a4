"""Two graphs that an experiment holds are compared aside: the hub answers meanwhile."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.panel.channel.commands import CommandError, execute
from workbench.panel.channel.graph_comparison import compare
from workbench.panel.channel.hub import Hub
from workbench.records import GraphDiff


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[Experiment]:
    x, y = torch.randn(64, 8), torch.randint(0, 3, (64,))
    exp = Experiment(nn.Linear(8, 3), (x, y), batch_size=32, runs=tmp_path)
    yield exp
    exp.close()


def test_two_graphs_are_compared_and_the_diff_is_held_beside_them(experiment: Experiment) -> None:
    for _ in range(2):
        execute(experiment, "capture", {"what": "graph"})
        experiment.wait(120)
    newer, older = [info for info in experiment.captures.infos() if info.kind == "graph"][:2]
    compare(experiment, {"a": older.id, "b": newer.id}).make()
    diff = experiment.captures.infos()[0]
    assert (diff.kind, diff.against_step, diff.step) == ("diff", older.step, newer.step)
    record = experiment.captures.get(diff.id)
    assert isinstance(record, GraphDiff)
    assert diff.summary == record.sentence != ""


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        ("graph", "graph", "compared with itself"),
        ("graph", "memory", "no graph .* is held any more; held are: "),
        ("gone", "graph", "no graph 'gone' is held any more"),
        ("graph", None, "b must be text"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    experiment: Experiment, a: str, b: str | None, sentence: str
) -> None:
    execute(experiment, "capture", {"what": "both"})
    experiment.wait(120)
    ids: dict[Any, str] = {info.kind: info.id for info in experiment.captures.infos()}
    with pytest.raises(CommandError, match=sentence):
        compare(experiment, {"a": ids.get(a, a), "b": ids.get(b, b)})
    assert len(experiment.captures.infos()) == 2


def test_a_stop_is_carried_out_while_graphs_are_compared(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was queued behind the comparison, on the thread that serves every view."""
    for _ in range(2):
        execute(experiment, "capture", {"what": "graph"})
        experiment.wait(120)
    graphs = [info.id for info in experiment.captures.infos() if info.kind == "graph"]
    diffing = importlib.import_module("workbench.graph.diff.diff")
    begun, go_on, replied = threading.Event(), threading.Event(), threading.Event()
    real: Callable[..., Any] = diffing.diff_records

    def slow(*given: Any) -> Any:
        begun.set()
        go_on.wait()
        return real(*given)

    monkeypatch.setattr(diffing, "diff_records", slow)
    replies: dict[str, Any] = {}

    def sender(message: dict[str, Any], _buffers: Any = None) -> None:
        if message.get("type") == "reply":
            replies[message["id"]] = message
            replied.set()

    def wait_for(request: str) -> Any:
        while request not in replies:
            replied.wait()
            replied.clear()
        return replies[request]

    hub = Hub()
    hub.add(experiment)
    hub.connect("page", sender)

    def ask(name: str, **args: object) -> None:
        message = {"type": "command", "id": name, "experiment": experiment.id}
        hub.receive("page", {**message, "name": name, "args": args})

    try:
        ask("compare", a=graphs[1], b=graphs[0])
        begun.wait()
        ask("stop")
        assert wait_for("stop")["ok"]
        assert "compare" not in replies
        go_on.set()
        assert wait_for("compare")["ok"]
        assert experiment.captures.infos()[0].kind == "diff"
    finally:
        go_on.set()
        hub.disconnect("page")
        hub.end()
