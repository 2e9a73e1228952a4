from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from workbench.panel.assembly import Experiment
from workbench.panel.channel.commands import CommandError, execute
from workbench.panel.channel.state import describe


def test_run_trains_for_the_epochs_asked(experiment: Experiment) -> None:
    execute(experiment, "run", {"epochs": 2})
    experiment.wait()
    assert experiment.step_count == 16
    assert experiment.status == "finished"


@pytest.mark.parametrize("value", [0, -3, 1.5, "3", None, True, float("nan"), 10**12])
def test_a_bad_number_of_epochs_is_refused_and_nothing_changes(
    experiment: Experiment, value: Any
) -> None:
    before = experiment.epochs
    with pytest.raises(CommandError, match="whole number from 1"):
        execute(experiment, "set_epochs", {"epochs": value})
    assert experiment.epochs == before


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), "1e-3", None, True])
def test_a_bad_learning_rate_is_refused(experiment: Experiment, value: Any) -> None:
    before = experiment.learning_rate
    with pytest.raises(CommandError, match="positive finite number"):
        execute(experiment, "set_learning_rate", {"value": value})
    assert experiment.learning_rate == before


def test_the_learning_rate_reaches_the_optimizer(experiment: Experiment) -> None:
    execute(experiment, "set_learning_rate", {"value": 0.0125})
    assert experiment.optimizer.param_groups[0]["lr"] == 0.0125


def test_a_mode_is_switched_by_name(experiment: Experiment) -> None:
    execute(experiment, "set_mode", {"mode": "precision", "value": "bf16"})
    assert experiment.modes == "bf16"
    execute(experiment, "set_modes", {"modes": "fp32"})
    assert experiment.modes == "fp32"


def test_capture_while_idle_runs_one_step_and_leaves_both_records(experiment: Experiment) -> None:
    execute(experiment, "capture", {"what": "both"})
    experiment.wait(120)
    assert {info.kind for info in experiment.captures.infos()} == {"graph", "memory"}
    assert experiment.step_count == 1


def test_capture_of_a_run_that_is_over_leaves_it_over(experiment: Experiment) -> None:
    experiment.run(steps=2, wait=True)
    execute(experiment, "capture", {"what": "both"})
    experiment.wait(120)
    assert [info.step for info in experiment.captures.infos()].count(3) == 2
    assert (experiment.status, experiment.step_count) == ("finished", 2)


def test_an_unknown_command_lists_the_valid_ones(experiment: Experiment) -> None:
    with pytest.raises(CommandError, match=r"'explode'; valid: .*pause.*stop"):
        execute(experiment, "explode", {})


def test_the_schedule_is_taken_away(tmp_path: Path) -> None:
    x, y = torch.randn(64, 8), torch.randint(0, 3, (64,))
    experiment = Experiment(
        nn.Linear(8, 3), (x, y), batch_size=32, runs=tmp_path,
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2),
    )  # fmt: skip
    assert describe(experiment).schedule == experiment.schedule
    execute(experiment, "remove_scheduler", {})
    assert experiment.scheduler is None
    assert describe(experiment).schedule is None
    execute(experiment, "remove_scheduler", {})
    experiment.close()
    with pytest.raises(RuntimeError, match="is closed"):
        execute(experiment, "remove_scheduler", {})
