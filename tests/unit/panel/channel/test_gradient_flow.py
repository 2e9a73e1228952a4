"""The gradient flow as a browser is sent it: whole at first, then what was sampled since."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.panel.channel.test_hub import Wire
from tests.waiting import wait_until
from workbench.gradient_flow.log import flow_of, gradient_flow
from workbench.panel.assembly import Experiment
from workbench.panel.channel.commands import CommandError
from workbench.panel.channel.gradient_flow import flow_since
from workbench.panel.channel.hub import Hub
from workbench.records import GradientFlow


def sampled(experiment: Experiment, count: int) -> None:
    """As many samples as steps: the pace of the log is not what is asked here."""
    experiment.step().wait(120)
    parameters = list(experiment.model.parameters())
    for parameter in parameters:
        parameter.grad = parameter.detach().clone()
    for at in range(count - gradient_flow(experiment).total_sampled):
        flow_of(experiment).take(experiment.model, parameters, 100 + at)
        flow_of(experiment).flush()


def read(found: tuple[int, bytes] | None) -> tuple[int, GradientFlow]:
    assert found is not None
    return found[0], GradientFlow.from_bytes(found[1])


def test_the_pieces_together_are_the_whole_record(experiment: Experiment) -> None:
    sampled(experiment, 5)
    known, first = read(flow_since(experiment, {"known": 0}))
    assert (known, len(first.step)) == (0, 5)
    sampled(experiment, 12)
    known, more = read(flow_since(experiment, {"known": first.total_sampled}))
    assert (known, len(more.step)) == (5, 7)
    assert more.rows == first.rows
    whole = gradient_flow(experiment)
    assert more.total_sampled == whole.total_sampled == 12
    assert np.array_equal(np.concatenate([first.step, more.step]), whole.step)
    joined = np.hstack([first.matrix(), more.matrix()])
    assert np.array_equal(joined, whole.matrix(), equal_nan=True)


def test_nothing_is_sent_while_nothing_was_sampled(experiment: Experiment) -> None:
    sampled(experiment, 3)
    assert flow_since(experiment, {"known": 3}) is None


def test_before_the_first_step_there_is_an_empty_record(experiment: Experiment) -> None:
    known, record = read(flow_since(experiment, {}))
    assert (known, len(record.step)) == (0, 0)


def test_a_browser_that_missed_too_much_or_knows_another_run_gets_all(
    experiment: Experiment,
) -> None:
    sampled(experiment, 1300)
    known, record = read(flow_since(experiment, {"known": 10}))
    assert (known, len(record.step)) == (0, 1300)
    assert read(flow_since(experiment, {"known": 5000}))[0] == 0


@pytest.mark.parametrize("known", [-1, 1.5, "3", True, None])
def test_what_is_known_must_be_a_count(experiment: Experiment, known: Any) -> None:
    with pytest.raises(CommandError, match="known must be a whole number from 0 on"):
        flow_since(experiment, {"known": known})


def test_the_hub_answers_one_client_and_says_what_was_wrong(experiment: Experiment) -> None:
    hub, asking, other = Hub(), Wire(), Wire()
    hub.add(experiment)
    hub.connect("a", asking)
    hub.connect("b", other)
    sampled(experiment, 2)
    wait_until(lambda: asking.of("hello") and other.of("hello"))
    for at, known in enumerate((0, 2, -1)):
        command = {"type": "command", "id": str(at), "experiment": experiment.id}
        hub.receive("a", {**command, "name": "flow", "args": {"known": known}})
    wait_until(lambda: len(asking.of("reply")) == 3)
    assert [(m["experiment"], m["known"]) for m in asking.of("flow")] == [(experiment.id, 0)]
    assert [m["ok"] for m in asking.of("reply")] == [True, True, False]
    assert "whole number" in asking.of("reply")[2]["error"]
    assert other.of("flow") == []
    hub.disconnect("a")
    hub.disconnect("b")
