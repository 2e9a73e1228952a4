"""A run that is killed again and again ends as one that never was."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.integration.resumed_run import EPOCHS, KINDS, STEPS
from tests.integration.scripts import environment

_DEADLINE_S = 300


def started(folder: Path, kind: str, target: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.resumed_run", str(folder), kind, str(target)],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment(), "OMP_NUM_THREADS": "1"},
    )


def killed_at(folder: Path, kind: str, line: str, target: Path) -> bool:
    """Start it and kill it at a line that it prints; False if it came to its end before."""
    process = started(folder, kind, target)
    with process:
        assert process.stdout is not None
        for printed in process.stdout:
            if printed.strip() == line:
                os.kill(process.pid, signal.SIGKILL)
                break
    return process.returncode == -signal.SIGKILL


def ended(folder: Path, kind: str, target: Path) -> Any:
    process = started(folder, kind, target)
    with process:
        process.communicate(timeout=_DEADLINE_S)
    assert process.returncode == 0
    return torch.load(target, weights_only=False)


def same(one: Any, other: Any, path: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for at, pair in enumerate(zip(one, other, strict=True)):
            same(*pair, f"{path}.{at}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    elif hasattr(one, "tolist"):
        assert one.tolist() == other.tolist(), path
    else:
        assert one == other, path


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_killed_ends_as_one_that_was_not(tmp_path: Path, kind: str) -> None:
    whole = ended(tmp_path / "whole", kind, tmp_path / "whole.pt")
    draws, folder = random.Random(kind), tmp_path / "killed"
    steps = sorted(draws.sample(range(6, STEPS - 1), 2))
    lines = [f"step {steps[0]}", "validates", f"step {steps[1]}"]
    target = tmp_path / "killed.pt"
    kills = sum(killed_at(folder, kind, line, target) for line in lines)
    assert kills == len(lines)
    same(ended(folder, kind, target), whole)
    assert [path.name for path in folder.iterdir()] == ["run"]
    curve = EventAccumulator(str(folder / "run"), size_guidance={"scalars": 0})
    curve.Reload()
    assert [event.step for event in curve.Scalars("train/loss")] == list(range(1, STEPS + 1))
    per_epoch = STEPS // EPOCHS
    assert [event.step for event in curve.Scalars("val/loss")] == [
        per_epoch * epoch for epoch in range(1, EPOCHS + 1)
    ]
