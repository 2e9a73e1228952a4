"""What paired rounds support saying, on times whose truth is known."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.compare.measurement import _MOST_PROCESSES
from workbench.compare.verdict import (
    EQUAL_WITHIN,
    Paired,
    _pooled,
    break_even,
    paired,
    student,
)

TIMES = st.lists(st.floats(1e-5, 10), min_size=5, max_size=30)
BOUND = math.log1p(EQUAL_WITHIN)


@dataclass(frozen=True)
class Machine:
    """What two variants are measured on.

    Args:
        processes: standard deviation of the log ratio of two processes that do the very same; drawn
            from Student's t of 5 degrees of freedom, so now and then one is far off.
        rounds: that of a round, around what its processes give.
        correlation: of a round's noise with that of the round before.
        outliers: share of rounds that something else disturbs, by half and more.
    """

    processes: float
    rounds: float
    correlation: float
    outliers: float


LARGE_MODEL = Machine(0.01, 0.015, 0.3, 0.03)
QUIET = Machine(0.03, 0.015, 0.3, 0.03)
WORST = Machine(0.044, 0.015, 0.3, 0.03)
"""Twice the same differ by 3 % as often as not, by 8 % now and then: the most that was measured."""
BUSY = Machine(0.03, 0.08, 0.5, 0.10)
OTHERS_WORK = Machine(0.05, 0.12, 0.8, 0.10)
TESTS_RUN_BESIDE = Machine(0.05, 0.25, 0.8, 0.10)
"""As measured beside a run of tests: rounds differ by 12 to 41 %, the middles of pairs by 17 %."""


def measured(
    rng: np.random.Generator, machine: Machine, log_ratio: float, most: int = _MOST_PROCESSES
) -> tuple[Paired, int]:
    """A comparison that is measured on until it is decided, and in how many pairs of processes."""
    logs: list[float] = []
    pairs: list[int] = []
    found = paired([], [])
    for pair in range(most):
        count = 15 if not pair else 5 if machine.rounds < 0.05 else 15
        noise = rng.normal()
        own = log_ratio + machine.processes * rng.standard_t(5) / math.sqrt(5 / 3)
        for _ in range(count):
            fresh = math.sqrt(1 - machine.correlation**2) * rng.normal()
            noise = machine.correlation * noise + fresh
            hit = rng.random() < machine.outliers
            logs.append(own + machine.rounds * noise + hit * rng.laplace(0, 0.5))
            pairs.append(pair)
        found = paired(np.exp(logs).tolist(), [1.0] * len(logs), pairs)
        if found.verdict != "unclear":
            return found, pair + 1
    return found, most


def verdicts(machine: Machine, log_ratio: float, trials: int) -> tuple[Counter[str], float]:
    """Share of each verdict, and how many pairs of processes 19 of 20 comparisons take."""
    rng = np.random.default_rng(int(1e4 * (machine.processes + machine.rounds + log_ratio)))
    found = [measured(rng, machine, log_ratio) for _ in range(trials)]
    shares = Counter(dict.fromkeys(("tie", "unclear", "faster", "slower"), 0.0))
    for verdict, _ in found:
        shares[verdict.verdict] += 1 / trials
    return shares, float(np.quantile([pairs for _, pairs in found], 0.95))


TRIALS = 80


@pytest.mark.parametrize("machine", [OTHERS_WORK, TESTS_RUN_BESIDE])
def test_what_others_do_to_a_pair_of_processes_is_no_difference(machine: Machine) -> None:
    found, _ = verdicts(machine, 0.0, TRIALS)
    assert found["faster"] + found["slower"] <= 0.05
    found, _ = verdicts(machine, math.log(1.5), TRIALS)
    assert found["faster"] >= 0.8
    assert found["tie"] + found["slower"] == 0


@pytest.mark.parametrize(
    ("machine", "ties", "wrong", "pairs"),
    [
        (LARGE_MODEL, 0.96, 0.02, 10),
        (QUIET, 0.92, 0.03, 24),
        (WORST, 0.7, 0.06, 24),
        (BUSY, 0.65, 0.05, 24),
    ],
)
def test_equal_variants_are_a_tie_and_hardly_ever_different(
    machine: Machine, ties: float, wrong: float, pairs: int
) -> None:
    found, took = verdicts(machine, 0.0, TRIALS)
    assert found["tie"] >= ties
    assert found["faster"] + found["slower"] <= wrong
    assert took <= pairs


@pytest.mark.parametrize("machine", [LARGE_MODEL, QUIET, WORST, BUSY])
def test_five_per_cent_are_found_and_never_a_tie(machine: Machine) -> None:
    found, took = verdicts(machine, math.log(1.05), TRIALS)
    assert found["faster"] >= (0.98 if machine in (LARGE_MODEL, QUIET) else 0.9)
    assert found["tie"] + found["slower"] <= 0.02
    if machine in (LARGE_MODEL, QUIET):
        assert took <= 12, "of some 5 s each: a minute"


@pytest.mark.parametrize("machine", [LARGE_MODEL, QUIET, WORST, BUSY])
def test_variants_that_differ_by_the_bound_are_rarely_a_tie(machine: Machine) -> None:
    found, _ = verdicts(machine, BOUND, TRIALS)
    assert found["tie"] <= 0.12, "the tests allow 5 %, and so few trials show up to 12"
    assert found["slower"] <= 0.02


@pytest.mark.parametrize("error", [0.01, 0.05, 0.1, 0.5])
def test_student_s_t_is_scipy_s(error: float) -> None:
    stats = pytest.importorskip("scipy.stats", reason="pip install scipy")
    for freedom in (*range(1, 31), 100):
        assert student(error, freedom) == pytest.approx(stats.t.ppf(1 - error / 2, freedom))


def test_without_a_prior_it_is_the_paired_t_test_and_two_one_sided_ones() -> None:
    """scipy's own, on the middles of some pairs of processes."""
    stats = pytest.importorskip("scipy.stats", reason="pip install scipy")
    rng = np.random.default_rng(3)
    ties = 0
    for shift in (0.0, 0.01, 0.02, 0.04):
        middles = rng.normal(shift, 0.01, 9)
        centre, error, freedom = _pooled(middles, 0.0, 0)
        test = stats.ttest_1samp(middles, 0.0)
        interval = test.confidence_interval(0.99)
        half = error * student(0.01, freedom)
        assert (centre - half, centre + half) == pytest.approx(tuple(interval))
        below = stats.ttest_1samp(middles, BOUND, alternative="less").pvalue
        above = stats.ttest_1samp(middles, -BOUND, alternative="greater").pvalue
        is_tie = abs(centre) + error * student(0.05, freedom) < BOUND
        assert is_tie == (max(below, above) < 0.025)
        ties += is_tie
    assert 0 < ties < 4


def test_what_one_pair_of_processes_is_certain_of_may_be_that_pair_s() -> None:
    base = np.ones(30)
    thirds = [0] * 10 + [1] * 10 + [2] * 10
    assert paired(base, base * 1.08).verdict == "unclear"
    assert paired(base, base).verdict == "unclear"
    assert paired(base, base * 1.4).verdict == "slower"
    assert paired(base, base * 1.08, thirds).verdict == "slower"
    assert paired(base, base, [at // 6 for at in range(30)]).verdict == "tie"


def test_the_bound_is_the_requested_one() -> None:
    base = np.ones(30)
    fifths = [at // 6 for at in range(30)]
    assert paired(base, base * 1.04, fifths).verdict == "unclear", "too few to know"
    assert paired(base, base * 1.04, fifths, equal_within=0.1).verdict == "tie"
    assert paired(base, base, fifths, equal_within=0.01).verdict == "unclear"


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
    assert paired(calm, disturbed / 1.4).ratio == pytest.approx(1.4)
    assert paired(calm, disturbed / 1.4).verdict == "faster"


@given(base=TIMES, factor=st.floats(0.2, 5))
def test_a_constant_ratio_is_found_exactly(base: list[float], factor: float) -> None:
    change = paired(base, [time / factor for time in base])
    assert change.ratio == pytest.approx(factor)
    assert change.low < change.ratio < change.high
    if abs(math.log(factor)) > 0.25:
        assert change.verdict == ("faster" if factor > 1 else "slower")
    else:
        assert change.verdict in ("unclear", "faster", "slower")


@given(base=TIMES, variant=TIMES)
def test_it_is_the_same_seen_from_the_other_side(base: list[float], variant: list[float]) -> None:
    there, back = paired(base, variant), paired(variant, base)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.low == pytest.approx(1 / back.high)
    assert there.low <= there.ratio <= there.high
    assert there.rounds == min(len(base), len(variant))
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
