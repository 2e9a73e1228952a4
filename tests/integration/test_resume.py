"""A run that is killed again and again ends as one that never was."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.fork_server import ForkServer
from tests.integration import resumed_run
from tests.integration.resumed_run import EPOCHS, KINDS, STEPS
from tests.integration.scripts import environment

_DEADLINE_S = 300
Started = Callable[[], AbstractContextManager[tuple[Any, TextIO]]]


@contextmanager
def running(
    server: ForkServer | None, folder: Path, kind: str, target: Path
) -> Iterator[tuple[Any, TextIO]]:
    """The training at work, and what it prints; without a server it is started as a program is."""
    arguments = str(folder), kind, str(target)
    env = {**environment(), "OMP_NUM_THREADS": "1"}
    if server is None:
        command = [sys.executable, "-m", "tests.integration.resumed_run", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout is not None
            yield process, process.stdout
        return
    said, errors = target.with_name("said"), target.with_name("errors")
    os.mkfifo(said)
    forked = server.script(
        Path(resumed_run.__file__), *arguments, env=env, stdout=said, stderr=errors
    )
    try:
        with said.open() as lines:
            yield forked, lines
            forked.wait(_DEADLINE_S)
    finally:
        forked.kill()
        said.unlink()


def killed_at(started: Started, line: str) -> bool:
    """Start it and kill it at a line that it prints; False if it came to its end before."""
    with started() as (process, lines):
        for printed in lines:
            if printed.strip() == line:
                os.kill(process.pid, signal.SIGKILL)
                break
    return process.returncode == -signal.SIGKILL


def ended(started: Started, target: Path) -> Any:
    with started() as (process, lines):
        lines.read()
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
def test_a_run_that_is_killed_ends_as_one_that_was_not(
    fork_server: ForkServer, tmp_path: Path, kind: str
) -> None:
    server = None if kind == "arrays" else fork_server
    target = tmp_path / "whole.pt"
    whole = ended(lambda: running(server, tmp_path / "whole", kind, target), target)
    draws, folder = random.Random(kind), tmp_path / "killed"
    steps = sorted(draws.sample(range(6, STEPS - 1), 2))
    lines = [f"step {steps[0]}", "validates", f"step {steps[1]}"]
    again = tmp_path / "killed.pt"
    started = functools.partial(running, server, folder, kind, again)
    kills = sum(killed_at(started, line) for line in lines)
    assert kills == len(lines)
    same(ended(started, again), whole)
    assert [path.name for path in folder.iterdir()] == ["run"]
    curve = EventAccumulator(str(folder / "run"), size_guidance={"scalars": 0})
    curve.Reload()
    assert [event.step for event in curve.Scalars("train/loss")] == list(range(1, STEPS + 1))
    per_epoch = STEPS // EPOCHS
    assert [event.step for event in curve.Scalars("val/loss")] == [
        per_epoch * epoch for epoch in range(1, EPOCHS + 1)
    ]
