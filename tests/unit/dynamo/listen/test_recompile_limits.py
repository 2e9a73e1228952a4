"""Dynamo's limit of recompiles is reported: what reached it, how often, why; at the toggle too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch._dynamo import config

import workbench as wb
from workbench.dynamo import watch
from workbench.dynamo.listen.rank_reports import _write
from workbench.dynamo.listen.recompile_limits import limits_in
from workbench.dynamo.listen.recorder import Recorder, recorder
from workbench.experiment import Experiment
from workbench.modes.compile import mode as compile_mode
from workbench.modes.compile.graph_breaks import GraphBreakError
from workbench.panel.channel.state import describe
from workbench.panel.summary import text_summary
from workbench.trust import Seal

X = torch.ones(4, 8)


class Numbered(nn.Module):
    """Every call is another program to Dynamo: a number of the module is part of the code."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 5)
        self.number = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.number += 1
        return self.line(x) + self.number


@pytest.fixture
def _eager_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo is what is looked at here; building kernels would take most of the time."""
    arguments = compile_mode._arguments

    def with_backend(*args: Any) -> dict[str, Any]:
        return {**arguments(*args), "backend": "eager"}

    monkeypatch.setattr(compile_mode, "_arguments", with_backend)


def test_what_reached_it_how_often_and_why(reported: Callable[..., object]) -> None:
    first = recorder().count

    def scaled(x: torch.Tensor, factor: str) -> torch.Tensor:
        return x * len(factor)

    with config.patch(recompile_limit=3):
        compiled = torch.compile(scaled, backend="eager")
        reported(compiled, *((X, "a" * n) for n in range(1, 7)))
    (limit,) = limits_in(recorder().compilations(first))
    assert limit.count == 3
    assert limit.setting == "recompile_limit"
    assert limit.code == "scaled"
    assert limit.place is not None
    assert limit.place[0] == __file__
    assert limit.why
    assert "scaled at test_recompile_limits.py:" in limit.sentence
    assert "compiled 3 times" in limit.sentence
    assert limit.why in limit.sentence


def test_no_limit_is_reported_where_none_is_reached(reported: Callable[..., object]) -> None:
    first = recorder().count
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    reported(compiled, (X,), (torch.ones(5, 8),), (torch.ones(6, 8),))
    assert limits_in(recorder().compilations(first)) == []


def experiment(modes: str, runs: Path) -> Experiment:
    data = torch.randn(32, 8), torch.randint(0, 5, (32,))
    exp = Experiment(Numbered(), data, batch_size=4, modes=modes, runs=runs, device="cpu")
    watch(exp)  # as every wb.Experiment is
    return exp


@pytest.mark.usefixtures("_eager_backend")
def test_the_toggle_and_the_notes_of_an_experiment_say_so(tmp_path: Path) -> None:
    with config.patch(allow_unspec_int_on_nn_module=False):
        exp = experiment("compile:whole", tmp_path)
        exp.run(steps=6, wait=True)
        before = {state.name: state.badge for state in describe(exp).modes}
        assert before["compile"].kind != "warn"
        assert not any("Numbered" in note for note in exp.notes)
        exp.run(steps=6, wait=True)
    badges = {state.name: state.badge for state in describe(exp).modes}
    badge = badges["compile"]
    assert (badge.kind, badge.text) == ("warn", "recompile limit reached")
    assert badge.detail.startswith("forward of Numbered was compiled 8 times: number of the module")
    assert [state.badge.kind for state in describe(exp).modes].count("warn") == 1
    (note,) = [note for note in exp.notes if "recompile_limit" in note]
    assert "forward of Numbered at test_recompile_limits.py:" in note
    assert "register_buffer" in note, "what to do"
    assert "recompile limit reached" in text_summary(exp)
    assert note[:200] in str(exp)
    report = str(wb.compile_report(exp))
    assert "recompile limit" in report
    exp.modes = ""
    exp.run(steps=1, wait=True)
    assert all(state.badge.text != "recompile limit reached" for state in describe(exp).modes)
    exp.close()


@pytest.mark.usefixtures("_eager_backend")
def test_a_limit_that_a_cell_raised_is_the_limit(tmp_path: Path) -> None:
    with config.patch(recompile_limit=20):
        exp = experiment("compile:whole", tmp_path)
        exp.run(steps=12, wait=True)
    assert not any("recompile_limit" in note for note in exp.notes)
    exp.close()


@pytest.mark.usefixtures("_eager_backend")
def test_under_fullgraph_it_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    exp = experiment("compile:whole,fullgraph", tmp_path)
    with pytest.raises(
        GraphBreakError, match=r"Numbered was compiled as often as .* compile:whole"
    ):
        exp.run(steps=12, wait=True)
    exp.close()


@pytest.mark.usefixtures("_eager_backend")
def test_what_ranks_reported_is_at_the_toggle_while_they_train(tmp_path: Path) -> None:
    """A rank's file as rank 0 writes it; `tests/integration/parallel` has real ranks."""
    before = recorder().count
    elsewhere = experiment("compile:whole", tmp_path / "rank")
    elsewhere.run(steps=12, wait=True)
    exp = experiment("", tmp_path / "kernel")
    session = exp.path / "parallel" / "1"
    session.mkdir(parents=True)
    of_rank = SimpleNamespace(compilations=lambda first: recorder().compilations(first + before))
    seal = Seal.of_this_process().of_no_session
    _write(session / "rank-0.compiled.json", cast("Recorder", of_rank), seal)
    exp.modes = "compile:whole+ddp:2"
    badge = next(state.badge for state in describe(exp).modes if state.name == "compile")
    assert (badge.kind, badge.text) == ("warn", "recompile limit reached")
    assert badge.detail.startswith("forward of Numbered, rank 0 was compiled 8 times: ")
    assert [note for note in exp.notes if "rank 0 at test_recompile_limits.py:" in note]
    (exp.path / "parallel" / "2").mkdir()  # ranks that have reported nothing yet
    badge = next(state.badge for state in describe(exp).modes if state.name == "compile")
    assert badge.kind != "warn"
    exp.close()
    elsewhere.close()
