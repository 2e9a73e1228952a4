"""A training handed out whole at a step boundary, to be copied as it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from workbench.experiment.between_steps import at_step_boundary
from workbench.experiment.rng import RandomState

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment
    from workbench.experiment.training import Training


def copied(experiment: Experiment, copy: Callable[[Training], None]) -> None:
    """Have ``copy`` write the training down, without its modes attached; it goes on as before.

    Random numbers are those of the run while ``copy`` is at work.

    Raises:
        RuntimeError: the experiment is closed, or the training thread itself asked.
        Exception: what ``copy`` raises; the experiment goes on.
    """

    def work(training: Training) -> None:
        outside, kept = RandomState(training.device), training.random.state_dict()
        outside.save()
        attached = training.attached
        if attached is not None:
            attached.detach(training.model)
        try:
            if not training.seeded:
                torch.manual_seed(training.seed)
            elif training.board.status != "training":
                training.random.restore()
            copy(training)
        finally:
            if attached is not None:
                attached.attach(training.model)
            training.random.load_state_dict(kept)
            outside.restore()

    at_step_boundary(experiment, work)
