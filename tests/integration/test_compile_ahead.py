"""Compile is prepared in another process while a real run goes on, and then switched to."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn
from torch._inductor import config
from torch.utils.data import Dataset

import workbench as wb
from tests.processes import children_running
from tests.waiting import DEADLINE_S, wait_until
from workbench.dynamo.explain.background_compile import CompileAhead, ahead_of
from workbench.panel.channel.commands import execute
from workbench.panel.channel.state import describe


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch.compiler.reset()
    with config.patch(compile_threads=1):
        yield
    torch.compiler.reset()


class Slow(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Takes a while, so that a run is long and has few steps."""

    def __init__(self) -> None:
        self.x, self.y = torch.randn(64, 8), torch.arange(64) % 3

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.002)
        return self.x[index], self.y[index]


class Fails(nn.Module):
    """Cannot be compiled whole."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.head(x)
        return y * 2 if y.sum() > 0 else y


class Held(Fails):
    def __init__(self) -> None:
        super().__init__()
        self.lock: Any = threading.Lock()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def experiment(folder: Path, model: Callable[[], nn.Module] = net) -> wb.Experiment:
    torch.manual_seed(0)
    return wb.Experiment(model(), Slow(), optimizer="sgd", runs=folder, batch_size=16, name="exp")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For temporary files: other processes of this machine may explain steps as well."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def exp(tmp_path: Path, own_folder: None) -> Iterator[wb.Experiment]:
    before = folders()  # of other processes, which may have been killed
    made = experiment(tmp_path)
    yield made
    made.close()
    wait_until(lambda: not workers() and folders() <= before)


def workers() -> list[psutil.Process]:
    return children_running("workbench.dynamo.explain_program")


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("workbench-explain-*"))


def compile_state(exp: wb.Experiment) -> Any:
    return next(mode for mode in describe(exp).modes if mode.name == "compile")


def test_a_run_goes_on_until_the_switch_and_after(exp: wb.Experiment, tmp_path: Path) -> None:
    run = exp.run(steps=10**6)
    begun = exp.step_count
    ahead = wb.compile_ahead(exp)
    assert (ahead.modes, ahead.status, exp.modes) == ("compile", "compiling", "fp32")
    assert ahead.wait(DEADLINE_S) == "switched"
    assert exp.step_count > begun
    assert ahead.problem == ""
    wait_until(lambda: exp.modes == "compile")
    switched = exp.step_count
    wait_until(lambda: exp.step_count > switched + 3)
    run.pause()
    exp.wait()
    losses = exp.scalars.history()["train/loss"]["value"]
    alike = experiment(tmp_path / "alike")
    alike.run(steps=exp.step_count, wait=True)
    same = alike.scalars.history()["train/loss"]["value"]
    assert len(losses) == len(same)
    assert (losses[:begun] == same[:begun]).all()
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(same), rtol=1e-5, atol=1e-6)
    alike.close()
    assert ahead_of(exp) is None


def assert_said_with_its_reason(exp: wb.Experiment, ahead: CompileAhead) -> None:
    """One line in the status line; the badge and `CompileAhead.problem` have all of it."""
    wait_until(lambda: f"{ahead.modes} was not switched to" in exp.message)
    _, _, reason = exp.message.partition(f"{ahead.modes} was not switched to: ")
    assert reason
    assert "\n" not in reason
    assert reason in ahead.problem
    assert not reason.startswith("under"), "the modes are named already"


def test_what_does_not_compile_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Fails)
    run = exp.run(steps=10**6)
    ahead = wb.compile_ahead(exp, "compile:whole,fullgraph")
    with pytest.raises(RuntimeError, match=r"fullgraph the step fails: .*; nothing was switched"):
        ahead.wait(DEADLINE_S)
    assert (exp.modes, exp.status, ahead.status) == ("fp32", "training", "failed")
    badge = compile_state(exp).badge
    assert (badge.kind, badge.text, badge.detail) == ("warn", "not switched", ahead.problem)
    assert_said_with_its_reason(exp, ahead)
    exp.modes = "bf16"
    wait_until(lambda: exp.modes == "bf16")
    assert compile_state(exp).badge.text != "not switched", "of the modes that are left"
    run.stop()
    exp.close()


def test_a_worker_that_is_killed_is_reported(exp: wb.Experiment) -> None:
    exp.run(steps=10**6)
    ahead = wb.compile_ahead(exp)
    wait_until(workers)
    workers()[0].kill()
    with pytest.raises(RuntimeError, match=r"ended from outside.*nothing was switched"):
        ahead.wait(DEADLINE_S)
    assert (exp.modes, exp.status) == ("fp32", "training")
    assert_said_with_its_reason(exp, ahead)


def test_it_is_cancelled_by_hand_by_other_modes_and_by_closing(exp: wb.Experiment) -> None:
    exp.run(steps=10**6)
    by_hand = wb.compile_ahead(exp)
    wait_until(workers)
    by_hand.cancel()
    assert by_hand.wait(DEADLINE_S) == "cancelled"
    wait_until(lambda: not workers())
    replaced = wb.compile_ahead(exp)
    closed = wb.compile_ahead(exp, "compile:whole")
    assert replaced.wait(DEADLINE_S) == "cancelled"
    exp.close()
    assert closed.wait(DEADLINE_S) == "cancelled"
    with pytest.raises(RuntimeError, match="closed"):
        wb.compile_ahead(exp)


def test_modes_set_meanwhile_stay(exp: wb.Experiment) -> None:
    exp.run(steps=10**6)
    ahead = wb.compile_ahead(exp)
    wait_until(workers)
    exp.modes = "bf16"
    assert ahead.wait(DEADLINE_S) == "cancelled"
    assert exp.modes == "bf16"


def test_what_cannot_leave_this_process_is_compiled_in_it(tmp_path: Path) -> None:
    exp = experiment(tmp_path, Held)
    exp.run(steps=10**6)
    ahead = wb.compile_ahead(exp)
    assert ahead.wait(DEADLINE_S) == "switched"
    assert "compiled in this process" in ahead.problem
    assert "lock" in ahead.problem
    wait_until(lambda: exp.modes == "compile")
    exp.close()


def test_modes_that_compile_nothing_are_refused(exp: wb.Experiment) -> None:
    with pytest.raises(ValueError, match="compiles nothing"):
        wb.compile_ahead(exp, "bf16")
    with pytest.raises(ValueError, match="unknown"):
        wb.compile_ahead(exp, "compile:sideways")


class TestFromThePanel:
    """Pressing compile while it trains."""

    def test_another_mode_begins_it_anew_and_off_gives_it_up(self, exp: wb.Experiment) -> None:
        exp.run(steps=10**6)
        execute(exp, "set_mode", {"mode": "compile", "value": "blocks"})
        first = ahead_of(exp)
        assert first is not None
        state = compile_state(exp)
        assert (state.value, state.pending) == ("off", "blocks")
        assert state.badge.text.startswith("compiling, ")
        execute(exp, "set_mode", {"mode": "precision", "value": "bf16"})
        wait_until(lambda: exp.modes == "bf16")
        second = ahead_of(exp)
        assert second is not None
        assert second is not first
        assert second.modes == "compile+bf16"
        execute(exp, "set_mode", {"mode": "compile", "value": "off"})
        assert (first.wait(DEADLINE_S), second.wait(DEADLINE_S)) == ("cancelled", "cancelled")
        assert (exp.modes, compile_state(exp).pending) == ("bf16", "")

    def test_it_is_switched_to(self, exp: wb.Experiment) -> None:
        exp.run(steps=10**6)
        execute(exp, "set_mode", {"mode": "compile", "value": "whole"})
        assert exp.modes == "fp32"
        wait_until(lambda: exp.modes == "compile:whole")
        assert compile_state(exp).pending == ""

    def test_where_nothing_trains_it_is_at_once(self, exp: wb.Experiment) -> None:
        execute(exp, "set_mode", {"mode": "compile", "value": "blocks"})
        assert (exp.modes, ahead_of(exp)) == ("compile", None)
