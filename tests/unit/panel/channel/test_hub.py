from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.cpp_builder import cpp_compiler_search
from torch.optim.lr_scheduler import OneCycleLR

from tests.waiting import wait_until
from workbench.modes import refresh
from workbench.panel.assembly import Experiment
from workbench.panel.channel.commands import execute
from workbench.panel.channel.hub import PERIOD_S, Hub


class Wire:
    """What a client would receive."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.broken = False

    def __call__(self, data: dict[str, Any], _buffers: Sequence[bytes] | None) -> None:
        if self.broken:
            raise OSError("comm closed")
        self.messages.append(data)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]


def test_states_are_coalesced_to_ten_a_second(experiment: Experiment) -> None:
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)
    wait_until(lambda: wire.of("curves"))
    before, begun, changes = len(wire.of("state")), time.monotonic(), 0
    while time.monotonic() < begun + 1.0 or changes <= 100 or len(wire.of("state")) == before:
        changes += 1
        experiment.learning_rate = 1e-3 * (1 + changes % 7)
    sent = len(wire.of("state")) - before
    assert sent <= (time.monotonic() - begun) / PERIOD_S + 2
    hub.disconnect("a")


def test_the_thread_ends_when_nobody_listens(experiment: Experiment) -> None:
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)
    wait_until(lambda: wire.of("hello"))
    hub.disconnect("a")
    wait_until(lambda: hub._thread is None)
    hub.connect("b", second := Wire())
    wait_until(lambda: second.of("curves"))
    hub.disconnect("b")
    wait_until(lambda: "workbench-hub" not in [t.name for t in threading.enumerate()])


def test_a_broken_client_does_not_silence_the_others(experiment: Experiment) -> None:
    hub, good, bad = Hub(), Wire(), Wire()
    hub.add(experiment)
    hub.connect("bad", bad)
    hub.connect("good", good)
    wait_until(lambda: good.of("curves"))
    bad.broken = True
    experiment.learning_rate = 0.5
    wait_until(lambda: good.messages[-1].get("state", {}).get("learning_rate") == 0.5)
    hub.disconnect("good")


def followed(experiment: Experiment) -> tuple[Hub, Wire, Experiment]:
    """A hub, who listens to it, and one more experiment that it publishes."""
    hub, wire = Hub(), Wire()
    other = Experiment(experiment.model, experiment_data(), name="short", runs=experiment.path)
    hub.add(other)
    hub.connect("a", wire)
    wait_until(lambda: wire.of("curves"))
    return hub, wire, other


def test_what_is_found_by_checking_again_is_known_to_every_experiment(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is about the machine: a panel beside the one that asked offers the mode as well."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    cpp_compiler_search.cache_clear()
    refresh()
    hub, wire, other = followed(experiment)
    hub.add(experiment)
    ids = {experiment.id, other.id}

    def offered() -> dict[str, bool]:
        """Whether each experiment's panel offers ``compile``, as it was told last."""
        newest = {message["experiment"]: message["state"] for message in wire.of("state")}
        modes = {key: {one["name"]: one for one in found["modes"]} for key, found in newest.items()}
        return {key: found["compile"]["choices"][1]["available"] for key, found in modes.items()}

    wait_until(lambda: offered() == dict.fromkeys(ids, False))
    monkeypatch.undo()
    try:
        request = {"type": "command", "id": 1, "name": "probe_modes", "experiment": other.id}
        hub.receive("a", {**request, "args": {}})
        wait_until(lambda: offered() == dict.fromkeys(ids, True))
    finally:
        cpp_compiler_search.cache_clear()
        refresh()
        hub.disconnect("a")


def test_the_hub_does_not_keep_an_experiment_alive(experiment: Experiment) -> None:
    hub, wire, other = followed(experiment)
    key, gone = other.id, weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
    wait_until(lambda: [m["experiment"] for m in wire.of("removed")] == [key])
    hub.disconnect("a")


def test_a_closed_experiment_leaves_every_view(experiment: Experiment) -> None:
    hub, wire, other = followed(experiment)
    other.close()
    wait_until(lambda: [m["experiment"] for m in wire.of("removed")] == [other.id])
    late = Wire()
    hub.connect("b", late)
    wait_until(lambda: late.of("hello"))
    assert late.of("hello")[0]["experiments"] == []
    hub.disconnect("a")
    hub.disconnect("b")


def test_each_memory_capture_is_charted_once_and_its_record_is_not_kept(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment.step().wait(120)  # the first step is captured by itself
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)
    wait_until(lambda: len(wire.of("chart")) == 1)
    newest = next(info for info in experiment.captures.infos() if info.kind == "memory")
    record = weakref.ref(experiment.captures.get(newest.id))
    monkeypatch.setattr("workbench.experiment.report.captures.MAX_CAPTURES", 1)
    execute(experiment, "capture", {"what": "memory"})
    experiment.wait(120)
    wait_until(lambda: len(wire.of("chart")) == 2)
    hub.disconnect("a")
    wait_until(lambda: hub._thread is None)
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
        wait_until(lambda: wire.of("hello"))
        assert asked.wait(120)
    experiment.learning_rate = 0.25
    wait_until(lambda: any(m["state"]["learning_rate"] == 0.25 for m in wire.of("state")))
    hub.disconnect("a")


def test_a_view_that_falls_silent_is_forgotten_until_it_speaks(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)
    wait_until(lambda: wire.of("curves"))
    client = hub._clients["a"]
    with monkeypatch.context() as patched:
        patched.setattr("workbench.panel.channel.hub.ASLEEP_AFTER_S", -1.0)
        wait_until(lambda: client.seq == 0)
        experiment.learning_rate = 0.125
        wait_until(lambda: not hub._dirty)
        assert (client.states, client.points, client.charts) == ({}, {}, {})
        assert all(m["state"]["learning_rate"] != 0.125 for m in wire.of("state"))
    hub.receive("a", {"type": "alive"})
    wait_until(lambda: any(m["state"]["learning_rate"] == 0.125 for m in wire.of("state")))
    assert len(wire.of("hello")) == 2
    hub.disconnect("a")


def test_a_view_that_leaves_before_it_is_greeted_is_not_kept(
    experiment: Experiment,
) -> None:
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)
    hub.disconnect("a")  # before it could be greeted, or just after
    wait_until(lambda: hub._thread is None)
    assert not hub._clients


def test_the_upcoming_rates_are_computed_while_a_view_is_open(tmp_path: Path) -> None:
    """Also where nothing trains and nothing else changes; the last state has all of them."""
    experiment = Experiment(
        torch.nn.Linear(8, 3), experiment_data(), batch_size=1, epochs=200, runs=tmp_path,
        scheduler=lambda optimizer: OneCycleLR(optimizer, 0.5, total_steps=12_800),
    )  # fmt: skip
    hub, wire = Hub(), Wire()
    hub.add(experiment)
    hub.connect("a", wire)

    def schedules() -> list[dict[str, Any]]:
        return [message["state"]["schedule"] for message in wire.of("state")]

    wait_until(lambda: schedules() and schedules()[-1]["is_whole"])
    assert any(not one["is_whole"] for one in schedules())
    last = schedules()[-1]
    assert (last["name"], last["every"], last["start"]) == ("OneCycleLR", "step", 0)
    assert last["end"] == experiment.total_steps
    assert len(last["low"]) == len(last["high"]) <= 120
    assert last["low"][0] == pytest.approx(0.02)
    assert max(last["high"]) == pytest.approx(0.5, rel=1e-3)
    experiment.scheduler = None
    wait_until(lambda: schedules()[-1] is None)
    hub.disconnect("a")
    experiment.close()


def test_an_experiment_that_a_loop_lets_go_of_is_told_to_its_end(tmp_path: Path) -> None:
    hub, wire = Hub(), Wire()
    hub.connect("a", wire)
    wait_until(lambda: wire.of("hello"))
    freed: list[weakref.ref[Experiment]] = []
    for width in (4, 8, 16):
        model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 2))
        data = torch.randn(24, 4), torch.arange(24) % 2
        exp = Experiment(model, data, batch_size=8, runs=tmp_path, device="cpu", name=f"w{width}")
        hub.add(exp)
        exp.run(steps=3, wait=True)
        freed.append(weakref.ref(exp))
        del exp
    wait_until(lambda: gc.collect() is not None and len(wire.of("removed")) == 3)
    assert [ref() for ref in freed] == [None] * 3
    for removed in wire.of("removed"):
        before = wire.messages[: wire.messages.index(removed)]
        told = [one["state"] for one in before if one["type"] == "state"]
        (*_, last) = [one for one in told if one["id"] == removed["experiment"]]
        assert (last["status"], last["step"]) == ("finished", 3)
        curves = [one for one in before if one["type"] == "curves"]
        totals = [one["total"][0] for one in curves if one["experiment"] == removed["experiment"]]
        assert totals[-1] == 3
    hub.disconnect("a")
