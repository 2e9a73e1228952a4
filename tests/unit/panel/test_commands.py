from __future__ import annotations

from typing import Any

import pytest

from workbench.panel.assembly import Experiment
from workbench.panel.commands import CommandError, execute
from workbench.records import GraphDiff


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
    experiment.wait(60)
    assert {info.kind for info in experiment.captures.infos()} == {"graph", "memory"}
    assert experiment.step_count == 1


def test_capture_of_a_run_that_is_over_leaves_it_over(experiment: Experiment) -> None:
    experiment.run(steps=2, wait=True)
    execute(experiment, "capture", {"what": "both"})
    experiment.wait(60)
    assert [info.step for info in experiment.captures.infos()].count(3) == 2
    assert (experiment.status, experiment.step_count) == ("finished", 2)


def test_two_graphs_are_compared_and_the_diff_is_held_beside_them(experiment: Experiment) -> None:
    for _ in range(2):
        execute(experiment, "capture", {"what": "graph"})
        experiment.wait(60)
    newer, older = [info for info in experiment.captures.infos() if info.kind == "graph"][:2]
    execute(experiment, "compare", {"a": older.id, "b": newer.id})
    diff = experiment.captures.infos()[0]
    assert (diff.kind, diff.against_step, diff.step) == ("diff", older.step, newer.step)
    record = experiment.captures.get(diff.id)
    assert isinstance(record, GraphDiff)
    assert diff.summary == record.sentence != ""


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        ("graph", "graph", "compared with itself"),
        ("graph", "memory", "no graph .* is held any more; held are: "),
        ("gone", "graph", "no graph 'gone' is held any more"),
        ("graph", None, "b must be text"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    experiment: Experiment, a: str, b: str | None, sentence: str
) -> None:
    execute(experiment, "capture", {"what": "both"})
    experiment.wait(60)
    ids: dict[Any, str] = {info.kind: info.id for info in experiment.captures.infos()}
    with pytest.raises(CommandError, match=sentence):
        execute(experiment, "compare", {"a": ids.get(a, a), "b": ids.get(b, b)})
    assert len(experiment.captures.infos()) == 2


def test_an_unknown_command_lists_the_valid_ones(experiment: Experiment) -> None:
    with pytest.raises(CommandError, match=r"'explode'; valid: .*pause.*stop"):
        execute(experiment, "explode", {})
