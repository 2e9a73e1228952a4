"""What paired rounds support saying, on times whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.compare.verdict import break_even, paired

TIMES = st.lists(st.floats(1e-5, 10), min_size=5, max_size=30)


def rounds(rng: np.random.Generator, count: int, factor: float) -> tuple[list[float], list[float]]:
    """Two arms on a machine that drifts and has outliers; the second is ``factor`` faster."""
    drift = np.exp(np.cumsum(rng.normal(0, 0.1, count)))
    base, arm = (0.01 * drift * np.exp(rng.normal(0, 0.03, count)) for _ in range(2))
    arm[rng.random(count) < 0.05] *= 3
    base[rng.random(count) < 0.05] *= 3
    return base.tolist(), (arm / factor).tolist()


def test_equal_arms_are_no_difference_and_a_slowdown_of_two_is_found() -> None:
    rng = np.random.default_rng(0)
    found = [paired(*rounds(rng, 15, 1.0)) for _ in range(2000)]
    equal = [one.verdict for one in found]
    assert equal.count("faster") + equal.count("slower") <= 0.015 * len(equal)
    assert equal.count("tie") >= 0.65 * len(equal)
    assert np.mean([one.low <= 1 <= one.high for one in found]) >= 0.985
    longer = [paired(*rounds(rng, 30, 1.0)).verdict for _ in range(500)]
    assert longer.count("tie") >= 0.96 * len(longer)
    slower = [paired(*rounds(rng, 15, 0.5)).verdict for _ in range(500)]
    assert slower.count("slower") == len(slower)


def test_a_difference_that_noise_hides_is_no_tie() -> None:
    rng = np.random.default_rng(1)
    base = np.exp(rng.normal(0, 0.5, (500, 8)))
    verdicts = [paired(row, row / 1.4 * np.exp(rng.normal(0, 0.5, 8))).verdict for row in base]
    assert verdicts.count("tie") == 0
    assert verdicts.count("unclear") > verdicts.count("slower")
    assert paired([1.0] * 5, [0.5, 0.9, 0.6, 1.1, 0.7]).verdict == "unclear"


@pytest.mark.parametrize(("count", "critical"), [(8, 0), (10, 3), (15, 15), (20, 37), (30, 109)])
def test_the_interval_is_that_of_the_table_of_signed_ranks(count: int, critical: int) -> None:
    """Critical values of Wilcoxon's test at 1 %, two-sided: so many means are left out."""
    values = np.exp(np.random.default_rng(count).normal(size=count))
    change = paired([1.0] * count, (1 / values).tolist())
    logs = np.log(values)
    means = sorted((a + b) / 2 for at, a in enumerate(logs) for b in logs[at:])
    assert math.log(change.low) == pytest.approx(means[critical])
    assert math.log(change.high) == pytest.approx(means[-1 - critical])


@given(base=TIMES, factor=st.floats(0.2, 5))
def test_a_constant_ratio_is_found_exactly(base: list[float], factor: float) -> None:
    change = paired(base, [time / factor for time in base])
    assert change.ratio == pytest.approx(factor)
    assert change.low == pytest.approx(change.high)
    if abs(math.log(factor)) > 0.05:
        assert change.verdict == ("faster" if factor > 1 else "slower")
    elif abs(math.log(factor)) < 0.048:
        assert change.verdict == "tie", "two processes of one arm differ by as much"


@given(base=TIMES, arm=TIMES)
def test_it_is_the_same_seen_from_the_other_side(base: list[float], arm: list[float]) -> None:
    there, back = paired(base, arm), paired(arm, base)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.low == pytest.approx(1 / back.high)
    assert there.low <= there.ratio <= there.high
    assert there.rounds == min(len(base), len(arm))
    assert {there.verdict, back.verdict} in ({"tie"}, {"unclear"}, {"faster", "slower"})


def test_few_rounds_support_nothing() -> None:
    assert paired([1.0] * 4, [0.5] * 4).verdict == ""
    assert paired([1.0], [0.5]).verdict == ""
    assert paired([], [1.0]).verdict == ""
    assert math.isnan(paired([], []).ratio)


@pytest.mark.parametrize(
    ("first", "step", "expected"),
    [(11.0, 0.5, 21.0), (0.5, 0.5, 0.0), (11.0, 2.0, -1.0), (0.5, 2.0, -1.0), (1.0, 1.0, 0.0)],
)
def test_when_a_first_step_is_paid_back(first: float, step: float, expected: float) -> None:
    assert break_even(first, step, 1.0, 1.0) == expected
