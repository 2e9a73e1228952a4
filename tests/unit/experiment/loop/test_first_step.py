"""Switching modes: measured, reversible, and without a trace in an fp32 sequence."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from workbench.experiment import Experiment
from workbench.experiment.loop.first_step import describe_switch
from workbench.modes import ModeSet
from workbench.modes.compile.toolchain import missing_for_compile

CPU = torch.device("cpu")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *[nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()) for _ in range(2)]
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def experiment(tmp_path: Path) -> Experiment:
    torch.manual_seed(0)
    data = torch.randn(256, 8), torch.arange(256) % 3
    return Experiment(Net(), data, batch_size=32, runs=tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("", "compile+bf16", "compile blocks + bf16"),
        ("compile", "", "compile off"),
        ("bf16", "fp32", "fp32"),
        ("attention:math", "attention:math+fp16", "attention math + fp16"),
    ],
)
def test_wording(before: str, after: str, text: str) -> None:
    assert describe_switch(ModeSet.parse(before, CPU), ModeSet.parse(after, CPU)) == text


def test_looking_at_the_parity_changes_nothing(tmp_path: Path) -> None:
    sequences: list[list[float]] = []
    for toggled in (False, True):
        exp = experiment(tmp_path)
        exp.run(steps=3, wait=True)
        if toggled:
            exp.modes = "attention:math"
        exp.run(steps=9, wait=True)
        assert (exp.timings.max_abs_delta_logit("attention:math") == 0.0) is toggled
        sequences.append(exp.scalars.since("train/loss", 0)[1].tolist())
        exp.close()
    assert sequences[0] == sequences[1]


class Averages(Net):
    """Averages its blocks into a copy that its forward reads, draws, and sets a mode."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        self.teacher.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.teacher[0].weight.lerp_(self.blocks[0][0].weight, 0.1)
            taught = self.teacher(x)
        self.teacher.eval()
        return super().forward(x) + 0.1 * taught[:, :3] * random.random() * np.random.rand()


def test_looking_at_the_parity_leaves_no_trace_of_what_a_forward_writes(tmp_path: Path) -> None:
    sequences: list[list[float]] = []
    for toggled in (False, True):
        torch.manual_seed(0)
        random.seed(1)
        np.random.seed(1)
        data = torch.randn(256, 8), torch.arange(256) % 3
        exp = Experiment(Averages(), data, batch_size=32, runs=tmp_path, device="cpu")
        exp.run(epochs=1, wait=True)
        if toggled:
            exp.modes = "attention:math"
        exp.run(steps=4, wait=True)
        assert (exp.timings.max_abs_delta_logit("attention:math") == 0.0) is toggled
        assert exp.notes == [] or toggled
        sequences.append(exp.scalars.since("train/loss", 0)[1].tolist())
        exp.close()
    assert sequences[0] == sequences[1]


@pytest.mark.skipif(missing_for_compile(CPU) is not None, reason="no C++ compiler here")
def test_hooks_do_not_hear_the_forward_that_is_compared_with(tmp_path: Path) -> None:
    exp, calls, heard = experiment(tmp_path), 0, list[int]()

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    exp.model.head.register_forward_hook(count)
    exp.model.head.register_forward_hook(lambda *_: heard.append(calls))
    for modes in ("", "bf16", "fp16", ""):
        exp.modes = modes
        exp.run(steps=2, wait=True)
    assert calls == 8
    assert heard == [1, 2, 3, 4, 5, 6, 7, 8]


def test_compiling_is_said_while_it_lasts(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    said: list[str] = []
    exp.subscribe(lambda event: said.append(exp.message))
    exp.modes = "compile"
    exp.run(steps=2, wait=True)
    exp.close()
    assert "step 1: compiling, which may take a minute" in said
    assert any(
        text.startswith("step 1: switched to compile blocks; first step took ") for text in said
    )


def test_fp16_keeps_its_scaler_through_a_visit_to_fp32(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    exp.modes = "fp16"
    exp.run(steps=3, wait=True)
    scale = exp.modeset.state_dict()["precision"]["scaler"]
    exp.modes = "fp32"
    exp.run(steps=2, wait=True)
    exp.modes = "fp16"
    assert exp.modeset.state_dict()["precision"]["scaler"] == scale
    exp.close()


@pytest.mark.skipif(missing_for_compile(CPU) is not None, reason="no C++ compiler here")
def test_dropout_is_not_passed_off_as_an_effect_of_compiling(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = torch.randn(64, 8), torch.arange(64) % 3
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    exp = Experiment(model, data, batch_size=32, runs=tmp_path, device="cpu")
    exp.run(steps=1, wait=True)
    exp.modes = "compile"
    exp.run(steps=1, wait=True)
    assert exp.timings.max_abs_delta_logit("compile") is None
    exp.modes = "compile+attention:math"
    exp.run(steps=1, wait=True)
    exp.modes = "attention:math"
    exp.run(steps=1, wait=True)
    exp.modes = "bf16"
    exp.run(steps=1, wait=True)
    assert 0 < (exp.timings.max_abs_delta_logit("bf16") or 0) < 0.1
    exp.close()


@pytest.mark.skipif(missing_for_compile(CPU) is not None, reason="no C++ compiler here")
def test_compile_mid_run_and_back_loses_no_step_and_no_moment(tmp_path: Path) -> None:
    exp = experiment(tmp_path)
    exp.run(steps=3, wait=True)
    moment = exp.optimizer.state[exp.model.head.weight]["exp_avg"]  # type: ignore[union-attr]
    keys = list(exp.model.state_dict())
    exp.modes = "compile"
    exp.run(steps=3, wait=True)
    assert exp.modeset.compiled
    parity = exp.timings.max_abs_delta_logit("compile")
    assert parity is not None
    assert parity < 1e-4
    assert exp.timings.first_step_seconds("compile") is not None
    assert list(exp.model.state_dict()) == keys
    exp.modes = ""
    exp.run(steps=3, wait=True)
    assert exp.step_count == 9
    assert exp.optimizer.state[exp.model.head.weight]["exp_avg"] is moment  # type: ignore[union-attr]
    assert not any(m.__dict__.get("_compiled_call_impl") for m in exp.model.modules())
    exp.close()
