"""torch.compile on a real card: CUDA graphs under every mode, kernels in Triton, their launches."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

import workbench as wb
from tests.integration.parallel.support import losses
from workbench.compare.launch_counts import launches
from workbench.experiment import Experiment
from workbench.modes.compile.mode import Compile

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(600),
]

GRAPHS = "compile:whole,reduce-overhead"
MODES = ["", "tf32", "bf16", "fp16", "attention:math", "checkpoint", "bf16+checkpoint"]


@pytest.fixture(autouse=True)
def _toolchain() -> None:
    refused = [c for c in Compile.choices(torch.device("cuda")) if not c.available]
    if refused:
        pytest.skip(f"{refused[0].why} {refused[0].remedy}")


class Net(nn.Module):
    """Two transformer blocks over pieces of a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def experiment(folder: Path, modes: str, *, with_val: bool = False) -> Experiment:
    torch.manual_seed(0)
    data = torch.randn(256, 8, 64), torch.arange(256) % 5
    val = (data[0][:40], data[1][:40]) if with_val else None
    return Experiment(
        Net(), data, val, batch_size=32, optimizer="adamw", lr=1e-3, runs=folder, device="cuda",
        modes=modes,
    )  # fmt: skip


def replayed(exp: Experiment) -> int:
    """CUDA graphs that one more step replays."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        exp.run(steps=1, wait=True)
        torch.cuda.synchronize()
    return sum(1 for event in profile.events() or () if event.name.endswith("GraphLaunch"))


@pytest.mark.parametrize("mode", MODES)
def test_steps_are_replayed_and_are_those_of_the_mode(mode: str, tmp_path: Path) -> None:
    graphs = experiment(tmp_path / "graphs", "+".join(filter(None, [GRAPHS, mode])))
    plain = experiment(tmp_path / "plain", mode)
    for exp in (graphs, plain):
        # every run has a thread of its own: graphs of the one before are found again
        exp.run(steps=6, wait=True)
        exp.run(steps=6, wait=True)
    rtol = 1e-3 if mode in ("", "attention:math", "checkpoint") else 3e-2
    torch.testing.assert_close(losses(graphs), losses(plain), rtol=rtol, atol=1e-4)
    assert replayed(graphs) >= 2, "forward and backward"
    assert replayed(plain) == 0
    graphs.close()
    plain.close()


def test_graphs_are_switched_on_and_off_without_losing_a_step(tmp_path: Path) -> None:
    toggled, stayed = experiment(tmp_path / "a", ""), experiment(tmp_path / "b", "")
    for modes in ("", GRAPHS, "", GRAPHS, ""):
        toggled.modes = modes
        toggled.run(steps=5, wait=True)
    stayed.run(steps=25, wait=True)
    assert len(losses(toggled)) == toggled.step_count == 25
    torch.testing.assert_close(losses(toggled), losses(stayed), rtol=1e-3, atol=1e-4)


def test_a_validation_between_steps_leaves_graphs_alone(tmp_path: Path) -> None:
    exp = experiment(tmp_path, GRAPHS, with_val=True)
    exp.run(epochs=3, wait=True)
    assert (exp.status, exp.step_count) == ("finished", 24)
    assert losses(exp).isfinite().all()


def test_the_report_has_triton_kernels_and_what_they_fused(tmp_path: Path) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    exp = experiment(tmp_path, "compile")
    with wb.compile_report() as report:
        exp.run(steps=2, wait=True)
    kernels = [kernel for kernel in report.record.kernels if kernel.language == "Triton"]
    assert kernels
    for kernel in kernels:
        assert "@triton.jit" in report.source(kernel.name)
        assert kernel.operations, f"{kernel.name} computes nothing"
    assert any("gelu" in name or "relu" in name for k in kernels for name in k.operations)
    assert report.record.device.startswith("cuda")


def test_compare_counts_launches_and_memory_of_the_card(tmp_path: Path) -> None:
    exp = experiment(tmp_path, "")
    view = wb.compare(exp, ["fp32", GRAPHS], rounds=5, show_progress=False)
    eager, graphs = view.record.arms
    assert (eager.problem, graphs.problem) == ("", "")
    assert 0 < graphs.operations < eager.operations
    weights = sum(p.numel() * p.element_size() for p in exp.model.parameters())
    assert eager.peak_bytes > 3 * weights, "weights, gradients and two moments are among it"


def test_launches_are_those_of_the_runtime() -> None:
    x = torch.randn(64, 64, device="cuda")
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(10):
            x = x.sin()
        host = x.cpu()
    assert host.isfinite().all()
    assert launches(profile.events() or ()) == 10
