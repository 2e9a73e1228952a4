"""Small gradients measured together say what each says alone."""

from __future__ import annotations

import math

import pytest
import torch

from tests.unit.graph.backward.test_gradient_stats import GRADIENTS, stats
from workbench.graph.backward.cpu_batch import MOST_VALUES, SmallGradients

PLAIN = [
    name
    for name, one in GRADIENTS.items()
    if one.layout is torch.strided and not one.is_complex() and one.dtype.itemsize > 1
]


def test_every_plain_gradient_in_one_buffer():
    small = SmallGradients()
    for row, name in enumerate(PLAIN):
        assert small.add(row, GRADIENTS[name], has_rows=False)
    found = dict(small.read())
    assert small.read() == []
    for row, name in enumerate(PLAIN):
        alone = stats(GRADIENTS[name])
        assert found[row].norm == pytest.approx(alone.norm, rel=1e-5)
        assert found[row].largest == pytest.approx(alone.largest)
        assert found[row]._replace(norm=0, largest=0) == alone._replace(norm=0, largest=0)


def test_values_that_are_not_finite_and_their_rows():
    gradient = torch.ones(20, 3)
    gradient[3, 1], gradient[7, 0], gradient[7, 1] = math.nan, math.inf, -math.inf
    small = SmallGradients()
    for row, (one, has_rows) in enumerate([(gradient, True), (gradient, False), (-gradient, True)]):
        small.add(row, one, has_rows=has_rows)
    small.add(3, gradient[4:], has_rows=True)
    found = dict(small.read())
    assert [found[row].non_finite for row in range(4)] == [3, 3, 3, 2]
    assert [found[row].rows for row in range(4)] == [(3, 7), (), (3, 7), (3,)]
    assert math.isnan(found[0].largest)
    assert found[3].largest == math.inf


def test_what_it_cannot_take_is_left_to_others():
    small = SmallGradients()
    for gradient in (torch.ones(MOST_VALUES + 1), torch.ones(0), GRADIENTS["complex"]):
        assert not small.add(0, gradient, has_rows=False)
    assert small.read() == []


def test_copies_do_not_grow_with_their_number():
    small = SmallGradients()
    for row in range(200):
        small.add(row, torch.full((MOST_VALUES,), float(row)), has_rows=False)
    found = dict(small.read())
    assert [found[row].largest for row in range(200)] == list(map(float, range(200)))


def test_a_gradient_changed_afterwards_keeps_its_figures():
    small, gradient = SmallGradients(), torch.tensor([3.0, 4.0], requires_grad=True)
    small.add(0, gradient * 1, has_rows=False)
    values = torch.tensor([3.0, 4.0])
    small.add(1, values, has_rows=False)
    values.zero_()
    assert [one.norm for _, one in small.read()] == [5.0, 5.0]


def test_extremes_of_double_precision():
    small = SmallGradients()
    for row, value in enumerate((1e200, 1e-200)):
        small.add(row, torch.full((4,), value, dtype=torch.float64), has_rows=False)
    assert [one.norm for _, one in small.read()] == pytest.approx([2e200, 2e-200])
