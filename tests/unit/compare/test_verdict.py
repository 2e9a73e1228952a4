"""What paired rounds support saying, on times whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.compare.verdict import Paired, break_even, paired

TIMES = st.lists(st.floats(1e-5, 10), min_size=5, max_size=30)


def rounds(rng: np.random.Generator, count: int, factor: float) -> tuple[list[float], list[float]]:
    """Two arms on a machine that drifts and has outliers; the second is ``factor`` faster."""
    drift = np.exp(np.cumsum(rng.normal(0, 0.1, count)))
    base, arm = (0.01 * drift * np.exp(rng.normal(0, 0.03, count)) for _ in range(2))
    arm[rng.random(count) < 0.05] *= 3
    base[rng.random(count) < 0.05] *= 3
    return base.tolist(), (arm / factor).tolist()


def measured(rng: np.random.Generator, counts: list[int], factor: float) -> Paired:
    """So many rounds in each of several pairs of processes, which differ by 3 %."""
    base, arm, processes = [], [], []
    for process, count in enumerate(counts):
        ours, theirs = rounds(rng, count, factor * math.exp(rng.normal(0, 0.03)))
        base += ours
        arm += theirs
        processes += [process] * count
    return paired(base, arm, processes)


ONE, FOUR, EIGHT = [15], [15, 5, 5, 5], [15, 5, 5, 5, 8, 7, 8, 7]


def test_equal_arms_are_no_difference_and_a_slowdown_of_two_is_found() -> None:
    rng = np.random.default_rng(0)
    for counts, unclear in ((ONE, 1.0), (FOUR, 0.5), (EIGHT, 0.25)):
        found = [measured(rng, counts, 1.0) for _ in range(500)]
        equal = [one.verdict for one in found]
        assert equal.count("faster") + equal.count("slower") <= 0.01 * len(equal)
        assert equal.count("unclear") <= unclear * len(equal)
        assert np.mean([one.low <= 1 <= one.high for one in found]) >= 0.98
        slower = [measured(rng, counts, 0.5).verdict for _ in range(200)]
        assert slower.count("slower") == len(slower)


def test_as_a_comparison_goes_on_equal_arms_become_a_tie() -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(500):
        at = 0
        while (verdict := measured(rng, (ONE, FOUR, EIGHT)[at], 1.0).verdict) == "unclear":
            at += 1
            if at == 3:
                break
        found.append(verdict)
    assert found.count("tie") >= 0.87 * len(found), "of rounds with many outliers"
    assert found.count("faster") + found.count("slower") <= 0.01 * len(found)


def test_what_one_pair_of_processes_is_certain_of_may_be_that_pair_s() -> None:
    base = np.ones(30)
    assert paired(base, base * 1.08).verdict == "unclear"
    assert paired(base, base * 1.2).verdict == "slower"
    assert paired(base, base * 1.08, [0] * 10 + [1] * 10 + [2] * 10).verdict == "slower"
    assert paired(base, base, [0] * 10 + [1] * 10 + [2] * 10).verdict == "tie"


def test_a_difference_that_noise_hides_is_no_tie() -> None:
    rng = np.random.default_rng(1)
    base = np.exp(rng.normal(0, 0.5, (500, 8)))
    verdicts = [paired(row, row / 1.4 * np.exp(rng.normal(0, 0.5, 8))).verdict for row in base]
    assert verdicts.count("tie") == 0
    assert verdicts.count("unclear") > verdicts.count("slower")
    assert paired([1.0] * 5, [0.5, 0.9, 0.6, 1.1, 0.7]).verdict == "unclear"


def test_a_round_that_something_else_disturbed_moves_nothing() -> None:
    calm, disturbed = np.ones(15), np.ones(15)
    disturbed[[3, 9]] = 40.0
    assert paired(calm, disturbed / 1.3).ratio == pytest.approx(1.3)
    assert paired(calm, disturbed / 1.3).verdict == "faster"


@given(base=TIMES, factor=st.floats(0.2, 5))
def test_a_constant_ratio_is_found_exactly(base: list[float], factor: float) -> None:
    change = paired(base, [time / factor for time in base])
    assert change.ratio == pytest.approx(factor)
    assert change.low < change.ratio < change.high
    if abs(math.log(factor)) > 0.15:
        assert change.verdict == ("faster" if factor > 1 else "slower")
    else:
        assert change.verdict in ("unclear", "faster", "slower")


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
