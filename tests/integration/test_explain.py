"""What compile would do, found out in another process: this one stays as it is."""

# pyright: reportPrivateUsage=false
# What Dynamo has counted.

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import config
from torch.utils.data import Dataset

import workbench as wb
from tests.interrupts import Interrupted, interrupted
from tests.processes import children_running
from workbench.dynamo import watch

WORKER = "workbench.dynamo.explain_program"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch.compiler.reset()
    with config.patch(compile_threads=1):
        yield
    torch.compiler.reset()


@pytest.fixture
def as_in_a_notebook() -> None:
    """Keys of torch's caches name the first module in ``sys.modules`` that has torch in it.

    Python puts a module there once it is imported, so that is always one of torch's own; pytest
    puts modules of tests there before.
    """
    for name in list(sys.modules):
        if name.startswith(("tests", "test_", "conftest")):
            sys.modules[name] = sys.modules.pop(name)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 3)
        self.kept: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.up(x))
        if h.sum() > 0:
            h = h * 2
        return self.down(h)


class Endless(Branching):
    """In another process its forward says that it has begun, and never ends."""

    def __init__(self, begun: Path) -> None:
        super().__init__()
        self.begun, self.process = begun, os.getpid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.stay()
        return super().forward(x)

    @torch.compiler.disable
    def stay(self) -> None:
        if os.getpid() != self.process:
            self.begun.touch()
            threading.Event().wait()


class Slow(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Takes a while, so that a run is long and has few steps."""

    def __init__(self) -> None:
        self.x, self.y = torch.randn(64, 8), torch.arange(64) % 3

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.002)
        return self.x[index], self.y[index]


def experiment(folder: Path, model: nn.Module | None = None) -> wb.Experiment:
    torch.manual_seed(0)
    made = wb.Experiment(
        model or Branching(), Slow(), optimizer="sgd", runs=folder, batch_size=16, name="exp"
    )
    watch(made)
    return made


@pytest.mark.usefixtures("as_in_a_notebook")
def test_a_run_goes_on_while_its_next_step_is_explained(tmp_path: Path) -> None:
    exp, alike = experiment(tmp_path / "a"), experiment(tmp_path / "b")
    compiled = torch._dynamo.utils.counters["stats"].copy()
    try:
        run = exp.run(steps=10**6)
        before = exp.step_count
        report = wb.compile_report(exp, explain=True)
        assert exp.step_count > before
        run.pause()
        exp.wait()
        assert torch._dynamo.utils.counters["stats"] == compiled
        alike.run(steps=exp.step_count, wait=True)
        for mine, other in zip(exp.model.parameters(), alike.model.parameters(), strict=True):
            assert torch.equal(mine, other)
        record = report.record
        assert (record.num_graphs, len(record.breaks)) == (2, 1)
        line = record.sources[record.breaks[0].source]
        assert line.text.strip() == "if h.sum() > 0:"
        assert record.experiment == exp.id
        assert record.notes[0].startswith("This is what compile would do")
        assert [region.paths for region in record.regions] == [("",)]
        exp.modes = "compile"
        exp.step(1).wait()
        own = wb.compile_report(exp).record
        assert own.compilation_autograd_hits.sum() == own.num_graphs
        assert own.compilation_autograd_misses.sum() == 0, "what was explained is on disk"
    finally:
        exp.close()
        alike.close()
    assert children_running(WORKER) == []


def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    exp = experiment(tmp_path, Endless(begun))
    with pytest.raises(Interrupted):
        interrupted(
            lambda: begun.exists() and children_running(WORKER),
            wb.compile_report,
            exp,
            explain=True,
        )
    assert children_running(WORKER) == []
    exp.run(steps=1, wait=True)
    exp.close()


def test_what_goes_wrong_there_is_reported_here(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    with pytest.raises(
        RuntimeError,
        match=r"under compile:whole,fullgraph the step fails: .*test_explain\.py:\d+ \(`if h\.sum",
    ):
        wb.compile_report(exp, explain="compile:whole,fullgraph")
    assert isinstance(exp.model, Branching)
    exp.model.kept = threading.Lock()
    with pytest.raises(TypeError, match=r"model\.kept is a _thread\.lock"):
        wb.compile_report(exp, explain=True)
    exp.close()


@pytest.mark.parametrize(
    ("modes", "sentence"),
    [("bf16", "compiles nothing"), ("compile+ddp:2", "leave ddp"), ("compil", "unknown")],
)
def test_modes_that_explain_nothing_are_refused(modes: str, sentence: str, tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        wb.compile_report(exp, explain=modes)
    exp.close()


def test_only_an_experiment_has_a_next_step() -> None:
    with pytest.raises(TypeError, match="explain= takes an Experiment, got Linear"):
        wb.compile_report(nn.Linear(2, 2), explain=True)  # pyright: ignore[reportArgumentType, reportCallIssue] - what is tested


def test_a_loop_of_ones_own_has_a_report(tmp_path: Path) -> None:
    torch.compiler.reset()  # what other tests compiled would be reported as compiled before
    torch.manual_seed(0)
    modes = wb.Modes("compile:whole")
    model = modes.prepare(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)))
    other = torch.compile(nn.Linear(8, 3), backend="eager")
    report = wb.compile_report(modes)
    assert "Nothing was compiled." in str(report)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    other(torch.ones(4, 8))
    with modes.forward():
        loss = model(torch.ones(4, 8)).sum()
    with modes.update(loss, optimizer):
        pass
    (region,) = report.record.regions
    assert (region.cls, region.paths) == ("Sequential", ("",))
    assert report.record.notes == ()
    assert report.kernels()
    assert wb.compile_report(modes).record.num_graphs == 1
    saved = report.save(tmp_path / "report.safetensors")
    del modes
    assert (
        str(wb.open(saved)).splitlines()[0]
        == "Compile report of Sequential: 1 graph, "
        + str(report).splitlines()[0].partition("1 graph, ")[2]
    )
