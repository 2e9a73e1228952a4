"""What is left out of a long curve is nothing that a person looks for; judged by plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.panel.channel.thinning import WEIGHT, kept_rows, moving_average

VALUES = st.lists(
    st.floats(-1e6, 1e6, width=32) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=400
)


def test_a_spike_of_one_step_is_kept() -> None:
    values = np.where(np.arange(20_000) % 50 == 49, 9.0, 1.0)
    rows = kept_rows(values, 5_000)
    assert len(rows) <= 5_000
    assert np.count_nonzero(values[rows] == 9.0) == 400


def test_a_step_that_is_not_finite_is_kept() -> None:
    values = np.ones(20_000)
    values[[7, 9_999, 19_998]] = math.nan, math.inf, -math.inf
    rows = kept_rows(values, 1_000)
    assert {7, 9_999, 19_998} <= set(rows.tolist())


@given(values=VALUES, most=st.integers(5, 60))
def test_rows_are_few_in_order_and_hold_every_extreme(values: list[float], most: int) -> None:
    rows = kept_rows(np.array(values), most).tolist()
    assert rows == sorted(set(rows))
    assert len(rows) <= max(most, 0)
    if not values:
        return
    assert rows[0] == 0
    assert rows[-1] == len(values) - 1
    finite = [value for value in values if math.isfinite(value)]
    kept = [values[row] for row in rows if math.isfinite(values[row])]
    assert (min(kept), max(kept)) == (min(finite), max(finite)) if finite else not kept
    assert len(finite) == len(values) or any(not math.isfinite(values[row]) for row in rows)


@given(values=VALUES)
def test_the_average_is_that_of_a_plain_loop(values: list[float]) -> None:
    found, weight = moving_average(np.array(values))
    expected, expected_weight = by_a_loop(values)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)
    assert weight == pytest.approx(expected_weight, rel=1e-9)


def test_the_average_of_a_million_values_loses_nothing() -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=1_000_000) * 10.0 ** generator.integers(-6, 6, 1_000_000)
    found, weight = moving_average(values)
    expected, _ = by_a_loop(values[-20_000:].tolist())  # older ones weigh nothing any more
    np.testing.assert_allclose(found[-10_000:], expected[-10_000:], rtol=1e-9)
    assert weight == 1.0


def by_a_loop(values: list[float]) -> tuple[list[float], float]:
    total = weights = 0.0
    averages: list[float] = []
    for value in values:
        if math.isfinite(value):
            total = (1 - WEIGHT) * total + WEIGHT * value
            weights = (1 - WEIGHT) * weights + WEIGHT
        averages.append(total / weights if weights else math.nan)
    return averages, weights
