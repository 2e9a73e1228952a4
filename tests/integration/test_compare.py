"""Modes against each other in real processes: what is found, what is left, what a fault costs."""

from __future__ import annotations

import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import workbench as wb
from tests.fork_server import ForkServer
from tests.integration.parallel.support import Net, losses, made, rows
from tests.integration.scripts import environment
from tests.interrupts import interrupted
from tests.processes import children_running, is_alive
from tests.waiting import DEADLINE_S, wait_until
from workbench.compare import compare, measurement
from workbench.compare.measurement import Session
from workbench.compare.text import speed
from workbench.modes import mode_states

WORKER = "workbench.compare.variant_program"


class Slowed(Net):
    """Does forward and backward ten times over where flash attention is off: a planted slowdown.

    Whatever the machine, and however much of a step is the optimizer and Python: these two are more
    than a quarter of it, so the step takes at least three times as long as without: what a machine
    that tests keep busy does not hide.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.backends.cuda.flash_sdp_enabled():
            with torch.enable_grad():
                for _ in range(9):
                    out = super().forward(x)
                    torch.autograd.grad(out.sum(), list(self.parameters()))
        return super().forward(x)


class Failing(Net):
    """Has no way to compute in 16 bits, and dies under deterministic kernels of attention."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled("cpu"):
            raise TypeError("no 16 bits here")
        if not torch.backends.cuda.flash_sdp_enabled():
            os._exit(9)
        return super().forward(x)


def variants_of(view: Any) -> dict[str, Any]:
    return {variant.modes: variant for variant in view.record.arms}


def variants_in(folder: Path) -> list[psutil.Process]:
    """What measures for a comparison under way: a process each, or as many as it has ranks."""
    found = folder.glob("workbench-compare-*/variant-*/rank-*.pid")
    return [psutil.Process(int(path.read_text())) for path in found]


@pytest.mark.usefixtures("forked_ranks")
def test_a_planted_slowdown_is_found_and_equal_variants_are_a_tie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "_AGAIN", 0.0)  # what is undecided then may stay so
    monkeypatch.setattr(measurement, "_LEAST_AGAIN_S", 15.0)
    experiment = made(tmp_path, lambda: Slowed(width=128), val=rows(), lr=0.01)
    experiment.run(steps=3, wait=True)
    view = compare(
        experiment,
        ["fp32", "checkpoint:off", "attention:math", "ddp:2", "attention:cudnn"],
        rounds=8,
        show_progress=False,
    )
    base, same, slowed, ranks, refused = view.record.arms
    assert slowed.verdict == "slower"
    assert 0.05 < slowed.speedup < 0.7
    assert same.verdict in ("tie", "unclear"), "as the machine lets it be seen"
    assert (same.delta_logit, same.agreement, same.delta_loss) == (0, 1, 0)
    assert slowed.delta_logit == 0
    (idle,) = slowed.notes
    assert idle == "mode attention:math has no effect on Slowed: model has no attention"
    assert slowed.operations > 1.5 * base.operations
    assert ranks.ranks == 2
    assert ranks.delta_loss < 1e-4
    assert refused.problem == "attention cudnn does not exist on cpu"
    assert math.isnan(refused.step_s)
    assert (view.record.parity_samples, view.record.parity_on) == (203, "validation")
    assert view.record.rounds == 8
    assert slowed.speedup < 0.7 * same.speedup
    found_none = "nothing was found to be faster than fp32 here" in str(view)
    assert found_none == all(variant.verdict != "faster" for variant in view.record.arms)
    states = mode_states(experiment.modeset, experiment.model, experiment.timings)
    badge = next(state.badge for state in states if state.name == "parallel")
    assert badge.detail == f"ddp:2: {speed(ranks).partition(' (')[0]}"
    assert "in turns by wb.compare" in badge.tooltip
    assert experiment.message == "step 3: fp32, attention:math, ddp:2 compared"
    # the experiment is as if nothing had been measured
    experiment.run(steps=4, wait=True)
    stayed = made(tmp_path, lambda: Slowed(width=128), val=rows(), lr=0.01)
    stayed.run(steps=7, wait=True)
    assert torch.equal(losses(experiment), losses(stayed))
    runs = [path for path in (experiment.path / "compare").iterdir() if any(path.iterdir())]
    assert sorted(path.name for path in runs) == ["attention-math", "ddp-2", "fp32", "fp32-2"]


@pytest.mark.usefixtures("forked_ranks")
def test_compile_has_a_first_step_that_costs(tmp_path: Path) -> None:
    experiment = made(tmp_path, lambda: Net(blocks=1), lr=0.01)
    view = wb.compare(experiment, ["fp32", "compile"], rounds=2, show_progress=False)
    base, compiled = view.record.arms
    assert compiled.problem == ""
    assert compiled.first_step_s > 4 * base.first_step_s
    assert compiled.graphs >= 1
    assert compiled.breaks == 0
    assert compiled.delta_logit < 1e-4
    assert compiled.verdict == ""
    assert view.record.parity_on == "training"


@pytest.mark.usefixtures("forked_ranks")
def test_a_variant_that_fails_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    experiment = made(tmp_path, Failing, lr=0.01)
    view = compare(
        {"one": experiment}, ["fp32", "bf16", "attention:math"], rounds=5, show_progress=False
    )
    base, failed, killed = view.record.arms
    assert base.verdict == "baseline"
    assert base.problem == ""
    assert failed.problem == "TypeError: no 16 bits here"
    assert killed.problem.startswith("ended from outside (status 9)")
    assert "bf16: TypeError: no 16 bits here" in str(view)


def test_an_interrupt_while_fresh_processes_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = made(tmp_path, Net, lr=0.01)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # however busy the machine is and whatever was measured
    monkeypatch.setattr(Session, "_undecided", lambda session: list(session._running))
    view = interrupted(
        lambda: list(tmp_path.glob("workbench-compare-*/variant-1-1/variant.json")),
        compare, experiment, ["fp32", "checkpoint:off"], rounds=2, show_progress=False,
    )  # fmt: skip
    assert view.record.cancelled
    assert view.record.rounds == 2
    assert not list(tmp_path.glob("workbench-compare-*"))
    assert not children_running(WORKER)


@pytest.mark.usefixtures("forked_ranks")
def test_an_interrupt_keeps_what_was_measured_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = made(tmp_path, Net, lr=0.01)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    variants: list[psutil.Process] = []

    def three_rounds() -> bool:
        answers = list(tmp_path.glob("workbench-compare-*/variant-1/answers.jsonl"))
        steps = any(one.read_text().count('"steps"') >= 3 for one in answers)
        variants[:] = variants_in(tmp_path) if steps else []
        return steps and all(map(is_alive, variants))

    view = interrupted(
        three_rounds, compare, experiment, ["fp32", "bf16"], rounds=100_000, show_progress=False
    )
    assert view.record.cancelled
    assert 2 <= view.record.rounds < 100_000
    assert all(variant.step_s > 0 for variant in view.record.arms)
    assert all(variant.samples_per_s > 0 for variant in view.record.arms)
    assert not list(tmp_path.glob("workbench-compare-*"))
    assert len(variants) == 2
    assert not any(map(is_alive, variants))


def test_variants_of_a_kernel_that_is_killed_end_and_leave_nothing(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    script, log = tmp_path / "kernel.py", tmp_path / "kernel.log"
    script.write_text(
        "import sys, tempfile\n"
        "from pathlib import Path\n"
        "from tests.integration.parallel.support import made\n"
        "from workbench.compare import compare\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "experiment = made(Path(sys.argv[1]) / 'runs')\n"
        "compare(experiment, ['fp32', 'ddp:2'], rounds=100_000, show_progress=False)\n"
    )
    kernel = fork_server.script(script, str(tmp_path), env=environment(), stdout=log, stderr=log)
    answers = "workbench-compare-*/variant-1/answers.jsonl"
    wait_until(lambda: any('"steps"' in one.read_text() for one in tmp_path.glob(answers)), "steps")
    variants = variants_in(tmp_path)
    assert len(variants) == 3
    kernel.kill()
    kernel.wait()
    _, alive = psutil.wait_procs(variants, timeout=DEADLINE_S)
    assert not alive
    wait_until(lambda: not list(tmp_path.glob("workbench-compare-*")), "an empty folder")


@pytest.mark.parametrize(
    ("target", "modes", "said"),
    [
        (nn.Linear(1, 1), ["fp32"], "takes an Experiment"),
        (None, "bf16", r"give a list of mode strings: \['bf16'\]"),
        (None, [], "modes is empty"),
        (None, ["fp32", "fp31"], "unknown mode 'fp31'"),
        ({}, ["fp32"], "no experiment"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, target: Any, modes: Any, said: str
) -> None:
    experiment = made(tmp_path)
    with pytest.raises((TypeError, ValueError), match=said):
        compare(experiment if target is None else target, modes)


@pytest.mark.usefixtures("forked_ranks")
def test_several_models_are_each_compared_with_themselves(tmp_path: Path) -> None:
    models = {"narrow": made(tmp_path, Net), "wide": made(tmp_path, lambda: Net(width=128))}
    view = compare(models, ["fp32", "bf16"], rounds=1, show_progress=False)
    assert [(variant.model, variant.modes) for variant in view.record.arms] == [
        ("narrow", "fp32"), ("narrow", "bf16"), ("wide", "fp32"), ("wide", "bf16"),
    ]  # fmt: skip
    assert [variant.verdict for variant in view.record.arms] == ["baseline", "", "baseline", ""]
    assert all(0 <= variant.agreement <= 1 for variant in view.record.arms)
    assert len(view.figure().axes) == 4


class Wide(nn.Module):
    """Keeps far more for backward than it has of weights; its blocks can be checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(16, 64), nn.Linear(64, 5)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)) for _ in range(8)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


@pytest.mark.usefixtures("forked_ranks")
def test_memory_is_that_of_the_mode(tmp_path: Path) -> None:
    data = torch.randn(4_096, 16), torch.randint(0, 5, (4_096,))
    exp = made(tmp_path, Wide, data, batch_size=2_048)
    view = compare(exp, ["fp32", "checkpoint"], rounds=1, parity_samples=8, show_progress=False)
    plain, checkpointed = view.record.arms
    kept = 2_048 * 64 * 4 * 3 * 8  # a block keeps three activations, or what goes into it
    assert kept < plain.peak_bytes < 1.3 * kept
    assert kept / 3 < checkpointed.peak_bytes < 0.6 * kept


class Fetched(Dataset[Any]):
    """Every sample takes 10 ms to get: 160 ms a step, and the model next to nothing."""

    def __len__(self) -> int:
        return 4_096

    def __getitem__(self, row: int) -> Any:
        time.sleep(0.01)
        return torch.randn(16), row % 5


@pytest.mark.usefixtures("forked_ranks")
def test_a_step_that_waits_for_its_data_is_seen_to(tmp_path: Path) -> None:
    """Steps whose batches lay ready, were they timed as well, would halve what is found."""
    loader = DataLoader(Fetched(), batch_size=16, num_workers=1, shuffle=True)
    exp = made(tmp_path, Net, loader)
    variants = ["fp32", "checkpoint:off"]
    view = compare(exp, variants, rounds=2, parity_samples=16, show_progress=False)
    for variant in view.record.arms:
        assert variant.problem == ""
        assert variant.step_s > 0.6 * 0.16
        assert variant.samples_per_s * variant.step_s == pytest.approx(16)


@pytest.mark.usefixtures("forked_ranks")
def test_samples_of_steps_are_counted(tmp_path: Path) -> None:
    loader = DataLoader(TensorDataset(*rows()), batch_size=128, drop_last=True)
    exp = made(tmp_path, Net, loader)
    view = compare(exp, ["fp32", "ddp:2"], rounds=1, show_progress=False)
    for variant in view.record.arms:
        assert variant.samples_per_s * variant.step_s == pytest.approx(128)


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_whose_loss_is_not_finite_are_not_timed(tmp_path: Path) -> None:
    exp = made(tmp_path, Net, lr=1e30)
    view = compare(exp, ["fp32", "ddp:2"], rounds=1, show_progress=False)
    for variant in view.record.arms:
        assert "not finite" in variant.problem or "NonFinite" in variant.problem
        assert math.isnan(variant.step_s)


@pytest.mark.usefixtures("forked_ranks")
def test_what_trains_is_paused_meanwhile_and_goes_on(tmp_path: Path) -> None:
    exp, other = made(tmp_path, Net, lr=0.01), made(tmp_path, Net, lr=0.01, name="other")
    other.run(epochs=10**6)
    wait_until(lambda: other.step_count > 3, "steps")
    seen: list[str] = []
    unsubscribe = other.subscribe(lambda event: seen.append(getattr(event, "status", "")))
    view = compare(exp, ["fp32"], rounds=2, show_progress=False)
    assert "paused" in seen
    assert view.record.notes == ("other was training and was paused meanwhile.",)
    wait_until(lambda: other.status == "training", "it goes on")
    unsubscribe()
    other.close()
