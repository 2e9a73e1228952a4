"""What ranks compile is in the report of their experiment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import workbench as wb
from tests.integration.parallel.support import Net, made
from tests.waiting import wait_until
from workbench.experiment.services import Services, only
from workbench.panel import assembly
from workbench.panel.channel.mode_switch import states_of


class Scaled(nn.Module):
    """A block with a line that Dynamo cannot follow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.linear(x))
        scale = float(x.detach().abs().max().item())
        return torch.tanh(x / (1.0 + scale))


class Breaking(Net):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Scaled(32) for _ in range(2))


@pytest.fixture(autouse=True)
def _as_in_a_notebook() -> Iterator[None]:
    with only(Services(send=assembly._send_to_ranks)):
        yield


@pytest.mark.parametrize("layout", ["fsdp:2", "ddp:2"])
def test_breaks_kernels_and_times_of_ranks_are_reported(tmp_path: Path, layout: str) -> None:
    experiment = made(tmp_path / "runs", Breaking)
    wb.compile_report(experiment)  # a wb.Experiment listens from the start
    experiment.run(steps=2, wait=True)
    experiment.modes = f"compile+{layout}"
    run = experiment.run(steps=100_000)
    wait_until(lambda: wb.compile_report(experiment).record.kernels, "kernels while it trains")
    run.pause()
    experiment.wait(120)
    experiment.modes = "fp32"
    experiment.run(steps=1, wait=True)

    record = wb.compile_report(experiment).record
    labels = [region.label for region in record.regions]
    assert labels == ["blocks.0 and blocks.1 (Scaled), rank 0"]
    (region,) = record.regions
    assert (region.cls, region.paths) == ("Scaled", ("blocks.0", "blocks.1"))
    assert record.sources[region.source].filename == __file__
    found = {(one.reason, record.sources[one.source].text.strip()) for one in record.breaks}
    assert found == {
        (
            "Unsupported Tensor.item() call with capture_scalar_outputs=False",
            "scale = float(x.detach().abs().max().item())",
        )
    }
    assert {kernel.language for kernel in record.kernels} >= {"C++"}
    assert any("relu" in name for kernel in record.kernels for name in kernel.operations)
    assert any(kernel.backward for kernel in record.kernels)
    assert any("rank 0" in note for note in record.notes)
    assert float(record.compilation_dynamo_s.sum()) > 0
    switches = [(one.modes, one.num_compilations > 0) for one in record.switches]
    assert switches == [("fp32", False), (f"compile+{layout}", True), ("fp32", False)]


class Numbered(Net):
    """Every call is another program to Dynamo: a number of the module is part of the code."""

    def __init__(self) -> None:
        super().__init__(blocks=1, width=16)
        self.number = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.number += 1
        return super().forward(x) + 1e-3 * self.number


@pytest.mark.usefixtures("forked_ranks")
def test_the_limit_of_recompiles_on_ranks_is_noted_and_at_the_toggle(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs", Numbered)
    wb.compile_report(experiment)
    experiment.modes = "compile:whole+ddp:2"
    experiment.run(steps=10, wait=True)
    (note,) = [note for note in experiment.notes if "recompile_limit" in note]
    assert note.startswith("forward of Numbered, rank 0 at test_compiled.py:")
    assert "was compiled 8 times" in note
    badge = next(state.badge for state in states_of(experiment) if state.name == "compile")
    assert (badge.kind, badge.text) == ("warn", "recompile limit reached")


def test_what_is_no_report_of_ranks_is_none(tmp_path: Path) -> None:
    experiment = made(tmp_path / "runs")
    wb.compile_report(experiment)
    session = experiment.path / "parallel" / "1"
    session.mkdir(parents=True)
    for text in ("", "[{]", json.dumps([])):
        (session / "rank-0.compiled.json").write_text(text)
        assert wb.compile_report(experiment).record.regions == ()
