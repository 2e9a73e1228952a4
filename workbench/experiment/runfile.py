"""When ``run.json`` of an experiment is written: what it says changed, and not too often."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from workbench.experiment.facts import run_facts

if TYPE_CHECKING:
    from workbench.experiment.rundir import RunFolder
    from workbench.experiment.runner import Runner

_EVERY_S = 1.0
"""At least so long from one writing to the next while training."""


class RunFile:
    """``run.json`` of one experiment, in its run directory. From any thread.

    It knows the run and not the experiment, which may be gone before its run has ended.

    Args:
        folder: the run directory.
        created_at: of the experiment, Unix time in seconds.
    """

    def __init__(self, folder: RunFolder, created_at: float) -> None:
        self._folder, self._created_at = folder, created_at
        self._written_at: float | None = None
        self._said: tuple[Any, ...] = ()

    def update(self, runner: Runner) -> None:
        """Write it if something in it changed; a disk that refuses is told to the person once."""
        training, now = runner.training, time.monotonic()
        board, step = training.board, training.step_count
        status = board.status
        says = (status, training.modes, runner.epoch, step, id(training.model))
        if status == "idle" or self._said == says:
            return
        recent = self._written_at is not None and now - self._written_at < _EVERY_S
        if recent and status == "training":
            return
        self._written_at, self._said = now, says
        written = self._folder.write(run_facts(runner, self._created_at))
        problem = "" if written else self._folder.problem
        if problem and problem not in board.notes:
            board.notes.append(problem)
            board.say(problem, step)
