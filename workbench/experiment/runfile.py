"""When ``run.json`` of an experiment is written: what it says changed, and not too often."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from workbench.experiment.facts import run_facts

if TYPE_CHECKING:
    from workbench.experiment.rundir import RunFolder
    from workbench.experiment.views import Delegates

_EVERY_S = 1.0
"""At least so long from one writing to the next while training."""


class RunFile:
    """``run.json`` of one experiment, in its run directory. From any thread."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._written_at: float | None = None
        self._said: tuple[Any, ...] = ()

    def update(self, experiment: Delegates) -> None:
        """Write it if something in it changed; a disk that refuses is told to the person once."""
        status, now = experiment.status, time.monotonic()
        step, model = experiment.step_count, id(experiment.model)
        says = (status, experiment.modes, experiment.epoch, step, model)
        if status == "idle" or self._said == says:
            return
        recent = self._written_at is not None and now - self._written_at < _EVERY_S
        if recent and status == "training":
            return
        self._written_at, self._said = now, says
        problem = "" if self._folder.write(run_facts(experiment)) else self._folder.problem
        if problem and problem not in experiment.notes:
            board = experiment._training.board  # pyright: ignore[reportPrivateUsage] - the same package
            board.notes.append(problem)
            board.say(problem, step)
