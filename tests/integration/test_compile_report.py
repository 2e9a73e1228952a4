"""The compile report of real trainings, and of a process beside whose trace it is made."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.dynamo import compile_report, watch
from workbench.experiment import Experiment
from workbench.graph import GraphProbe

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Block(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


def experiment(tmp_path: Path, modes: str, size: int = 64) -> Experiment:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), Block(), Block(), Block(), nn.Linear(16, 3))
    data = torch.randn(size, 8), torch.arange(size) % 3
    exp = Experiment(model, data, modes=modes, runs=tmp_path, batch_size=16, name="exp")
    watch(exp)
    return exp


def test_equal_blocks_are_one_region_and_a_second_switch_uses_it_again(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "compile")
    try:
        exp.run(steps=3, wait=True)
        first = compile_report(exp).record
        exp.modes = ""
        exp.run(steps=2, wait=True)
        exp.modes = "compile"
        exp.run(steps=2, wait=True)
        report = compile_report(exp)
    finally:
        exp.close()
    (region,) = report.record.regions
    assert region.paths == ("1", "2", "3")
    assert region.label == "1, 2 and 1 more (Block)"
    assert (region.num_graphs, region.num_breaks) == (1, 0)
    again = report.record.compilation_region
    assert len(again) == len(first.compilation_region), "nothing is compiled a second time"
    counts = [switch.num_compilations for switch in report.record.switches]
    assert counts == [len(again), 0, 0]
    assert "with compile: nothing compiled: the regions from before are used again." in str(report)
    assert report.record.experiment == exp.id


def test_the_first_step_s_captures_hide_no_block(tmp_path: Path) -> None:
    """A captured step calls blocks through a function of the capture's."""
    exp = experiment(tmp_path, "compile")
    capture = exp.capture(GraphProbe())
    try:
        exp.run(steps=1, wait=True)
        assert capture.wait().nodes
        record = compile_report(exp).record
    finally:
        exp.close()
    assert record.regions[0].paths == ("1", "2", "3")


def test_a_smaller_last_batch_is_named(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "compile:whole", size=40)
    try:
        exp.run(epochs=1, wait=True)
        record = compile_report(exp).record
    finally:
        exp.close()
    (again,) = record.recompiles
    assert again.words == "Dimension 0 of input was 16 and is 8."
    assert record.regions[0].cls == "Sequential"
    assert record.regions[0].paths == ("",)


def test_an_experiment_that_was_not_recorded_says_so(tmp_path: Path) -> None:
    data = torch.randn(32, 8), torch.arange(32) % 3
    exp = Experiment(nn.Linear(8, 3), data, runs=tmp_path)
    try:
        exp.run(steps=1, wait=True)
        assert "Nothing was recorded before" in compile_report(exp).record.notes[0]
    finally:
        exp.close()


def test_bf16_is_reported(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "compile+bf16")
    try:
        exp.run(steps=2, wait=True)
        record = compile_report(exp).record
    finally:
        exp.close()
    assert record.switches[0].modes == "compile+bf16"
    fused = {operation for kernel in record.kernels for operation in kernel.operations}
    assert {"aten._to_copy", "aten.gelu"} <= fused
    assert sum(record.seconds) > 0


def test_an_eager_training_has_compiled_nothing(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "")
    other = torch.compile(lambda x: x + 1)
    try:
        exp.run(steps=2, wait=True)
        other(torch.ones(3))
        report = compile_report(exp)
    finally:
        exp.close()
    assert report.record.regions == (), "what others compile is not this experiment's"
    assert str(report).startswith("Compile report of exp: Nothing was compiled.")


SCRIPT = """
import torch
from torch._inductor import config
config.compile_threads = 1
from workbench.dynamo import compile_report

def f(x):
    return torch.nn.functional.gelu(x).sum()

with compile_report() as report:
    torch.compile(f)(torch.ones(4, 8, requires_grad=True)).backward()
record = report.record
kernels = [k for k in record.kernels if k.code]
print(int(record.compilation_fx_hits.sum()), int(record.compilation_autograd_hits.sum()))
print(len(kernels), all("extern" in k.code for k in kernels), {k.from_cache for k in kernels})
print(sorted({o for k in kernels for o in k.operations}))
"""


def run_script(folder: Path, **environment: str) -> list[str]:
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), **environment}
    env["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_kernels_are_known_after_a_hit_on_disk_and_a_trace_of_the_user_s_goes_on(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "trace"
    cold = run_script(tmp_path)
    warm = run_script(tmp_path, TORCH_TRACE=str(trace))
    assert cold[0] == "0 0"
    assert warm[0] != "0 0", "the second process finds both graphs on disk"
    assert cold[1] == "2 True {False}"
    assert warm[1] == "2 True {True}"
    assert cold[2] == warm[2]
    assert "'aten.gelu', 'aten.gelu_backward', 'aten.sum'" in warm[2]
    (log,) = trace.iterdir()
    text = log.read_text()
    assert "dynamo_start" in text
    assert "inductor_output_code" in text
