from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from workbench.panel.assembly import Experiment
from workbench.panel.commands import execute
from workbench.panel.hub import Hub


class Wire:
    """What a client would receive."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.broken = False

    def __call__(self, data: dict[str, Any], _buffers: Sequence[bytes] | None) -> None:
        if self.broken:
            raise OSError("comm closed")
        self.messages.append(data)
        self.times.append(time.monotonic())

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]


def eventually(condition: Callable[[], object], timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def test_states_are_coalesced_to_ten_a_second(experiment: Experiment) -> None:
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)
    eventually(lambda: wire.of("curves"))
    stop = time.monotonic() + 1.0
    count = 0
    while time.monotonic() < stop:
        count += 1
        experiment.learning_rate = 1e-3 * (1 + count % 7)
    assert count > 100
    assert len(wire.of("state")) <= 14
    hub.disconnect("a")


def test_the_thread_ends_when_nobody_listens(experiment: Experiment) -> None:
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)
    eventually(lambda: wire.of("hello"))
    hub.disconnect("a")
    eventually(lambda: hub._thread is None)
    hub.connect("b", second := Wire())
    eventually(lambda: second.of("curves"))
    hub.disconnect("b")
    eventually(lambda: "workbench-hub" not in [t.name for t in threading.enumerate()])


def test_a_broken_client_does_not_silence_the_others(experiment: Experiment) -> None:
    hub, good, bad = Hub(), Wire(), Wire()
    hub.add(experiment)
    hub.connect("bad", bad)
    hub.connect("good", good)
    eventually(lambda: good.of("curves"))
    bad.broken = True
    experiment.learning_rate = 0.5
    eventually(lambda: good.messages[-1].get("state", {}).get("learning_rate") == 0.5)
    hub.disconnect("good")


def followed(experiment: Experiment) -> tuple[Hub, Wire, Experiment]:
    """A hub, who listens to it, and one more experiment that it publishes."""
    hub, wire = Hub(), Wire()
    other = Experiment(experiment.model, experiment_data(), name="short", runs=experiment.path)
    hub.add(other)
    hub.connect("a", wire)
    eventually(lambda: wire.of("curves"))
    return hub, wire, other


def test_the_hub_does_not_keep_an_experiment_alive(experiment: Experiment) -> None:
    hub, wire, other = followed(experiment)
    key, gone = other.id, weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
    eventually(lambda: [m["experiment"] for m in wire.of("removed")] == [key])
    hub.disconnect("a")


def test_a_closed_experiment_leaves_every_view(experiment: Experiment) -> None:
    hub, wire, other = followed(experiment)
    other.close()
    eventually(lambda: [m["experiment"] for m in wire.of("removed")] == [other.id])
    late = Wire()
    hub.connect("b", late)
    eventually(lambda: late.of("hello"))
    assert late.of("hello")[0]["experiments"] == []
    hub.disconnect("a")
    hub.disconnect("b")


def test_each_memory_capture_is_charted_once_and_its_record_is_not_kept(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment.step().wait(60)  # the first step is captured by itself
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)
    eventually(lambda: len(wire.of("chart")) == 1)
    newest = next(info for info in experiment.captures.infos() if info.kind == "memory")
    record = weakref.ref(experiment.captures.get(newest.id))
    monkeypatch.setattr("workbench.experiment.captures.MAX_CAPTURES", 1)
    execute(experiment, "capture", {"what": "memory"})
    experiment.wait(60)
    eventually(lambda: len(wire.of("chart")) == 2)
    hub.disconnect("a")
    eventually(lambda: hub._thread is None)
    gc.collect()
    assert record() is None
    assert len(wire.of("chart")) == 2


def experiment_data() -> Any:
    import torch

    return torch.randn(64, 8), torch.randint(0, 3, (64,))


def test_a_model_that_cannot_be_described_does_not_end_the_panel(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    asked = threading.Event()
    with monkeypatch.context() as patched:

        def broken(_self: Experiment) -> None:
            asked.set()
            raise RuntimeError("dictionary changed size during iteration")

        patched.setattr(Experiment, "facts", broken)
        hub.connect("a", wire)
        eventually(lambda: wire.of("hello"))
        assert asked.wait(20)
    experiment.learning_rate = 0.25
    eventually(lambda: any(m["state"]["learning_rate"] == 0.25 for m in wire.of("state")))
    hub.disconnect("a")


def test_a_view_that_falls_silent_is_forgotten_until_it_speaks(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)
    eventually(lambda: wire.of("curves"))
    client = hub._clients["a"]
    with monkeypatch.context() as patched:
        patched.setattr("workbench.panel.hub.ASLEEP_AFTER_S", -1.0)
        eventually(lambda: client.seq == 0)
        experiment.learning_rate = 0.125
        eventually(lambda: not hub._dirty)
        assert (client.states, client.points, client.charts) == ({}, {}, {})
        assert all(m["state"]["learning_rate"] != 0.125 for m in wire.of("state"))
    hub.receive("a", {"type": "alive"})
    eventually(lambda: any(m["state"]["learning_rate"] == 0.125 for m in wire.of("state")))
    assert len(wire.of("hello")) == 2
    hub.disconnect("a")


def test_a_view_that_leaves_before_it_is_greeted_is_not_kept(
    experiment: Experiment,
) -> None:
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)
    hub.disconnect("a")  # before it could be greeted, or just after
    eventually(lambda: hub._thread is None)
    assert not hub._clients
