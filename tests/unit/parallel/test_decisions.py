"""Values that a forward reads of its data are counted, and one of them answered otherwise."""

from __future__ import annotations

import pytest
import torch

from workbench.parallel.decisions import Decisions

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def test_what_is_computed_of_the_data_is_followed() -> None:
    held = torch.zeros(())
    with Decisions([X]) as decisions:
        y = (X * 2).relu()
        held.add_(y.sum())
        assert bool(y.mean() > 0)
        assert float(held) == 20.0
        assert y[0].max().item() == 4.0
    assert decisions.count == 3


def test_what_is_not_of_the_data_is_not() -> None:
    calls = torch.zeros(())
    with Decisions([X]) as decisions:
        calls += 1
        assert bool(calls > 0)
        assert calls.item() == 1.0
    assert decisions.count == 0


@pytest.mark.parametrize("number", [0, 1])
def test_one_answer_is_another(number: int) -> None:
    with Decisions([X], number):
        answers = [bool(X.sum() > 0), X.sum().item() > 0]
    assert answers == [number != 0, number != 1]


def test_whole_numbers_are_shapes_more_often_than_decisions() -> None:
    lengths = torch.tensor([1, 2])
    with Decisions([lengths], 0) as decisions:
        assert int(lengths.max()) == 2
    assert decisions.count == 0
