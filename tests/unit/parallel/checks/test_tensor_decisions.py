"""Values that a forward reads of its data are counted, and one of them answered otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from workbench.parallel.checks.tensor_decisions import Decisions, Other

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def test_what_is_computed_of_the_data_is_followed() -> None:
    held = torch.zeros(())
    with Decisions([X]) as decisions:
        y = (X * 2).relu()
        held.add_(y.sum())
        assert bool(y.mean() > 0)
        assert float(held) == 20.0
        assert y[0].max().item() == 4.0
        assert not torch.equal(y, X)
    assert decisions.readings == ["yes or no", "number", "number", "yes or no"]


def test_what_is_not_of_the_data_is_not() -> None:
    calls = torch.zeros(())
    with Decisions([X]) as decisions:
        calls += 1
        assert bool(calls > 0)
        assert calls.item() == 1.0
        assert torch.rand(()).item() < 1
    assert decisions.readings == []


def test_what_is_drawn_is_followed_where_it_is_asked_for() -> None:
    with Decisions(chance=True) as decisions:
        assert bool((torch.rand(3) * 2 < 3).all())
        assert bool(X.sum() > 0)
        assert torch.empty(2).uniform_().sum().item() < 2
    assert decisions.readings == ["yes or no", "number"]


@pytest.mark.parametrize("number", [0, 1])
def test_one_answer_is_another(number: int) -> None:
    with Decisions([X], other=Other(number)):
        answers = [bool(X.sum() < 0), X.sum().item() > 1e3]
    assert answers == [number == 0, number == 1]


def test_a_number_is_far_on_either_side() -> None:
    found: list[float] = []
    for below in (False, True):
        with Decisions([X], other=Other(0, below)):
            found.append(X.mean().item())
    assert found[0] > 1e6
    assert found[1] < -1e6


@pytest.mark.parametrize(
    ("ask", "is_read"),
    [
        (lambda x: bool((x > 0).any()), False),  # right without those that are not there
        (lambda x: bool((x > 9).any()), True),
        (lambda x: bool((x > 0).all()), True),
        (lambda x: bool((x > 9).all()), False),
        (lambda x: bool(~(x > 0).any()), False),
        (lambda x: bool(torch.logical_not((x > 9).any())), True),
    ],
)
def test_of_any_and_all_one_answer_is_tried(ask: Callable[[Any], bool], is_read: bool) -> None:
    plain = ask(X)
    with Decisions([X], other=Other(0)) as decisions:
        assert ask(X) is (not plain if is_read else plain)
    assert len(decisions.readings) == is_read


@pytest.mark.parametrize(
    "read", [lambda x: int(x.long().max()), lambda x: x.tolist(), lambda x: x.numpy()]
)
def test_what_has_no_other_answer_is_reported(read: Callable[[Any], Any]) -> None:
    with Decisions([X]) as decisions:
        read(X * 1)
    assert decisions.unanswered
    assert decisions.readings == []
    with Decisions([torch.ones(1)]) as decisions:
        read(X * 1)
    assert not decisions.unanswered


def test_a_list_of_one_number_is_a_number() -> None:
    with Decisions([X], other=Other(0)) as decisions:
        assert X.mean().tolist() > 1e6
    assert decisions.readings == ["number"]
