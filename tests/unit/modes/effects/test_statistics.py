from __future__ import annotations

import numpy as np
import pytest

from workbench.modes.effects.statistics import speedup, spread


def noisy(rng: np.random.Generator, count: int, scale: float, memory: float) -> list[float]:
    """Skewed step times whose neighbours resemble each other by ``memory`` (0 to 1)."""
    level, times = 0.0, []
    for shock in rng.normal(size=count):
        level = memory * level + (1 - memory**2) ** 0.5 * shock
        times.append(scale * float(np.exp(0.3 * level)))
    return times


def test_the_summary_is_the_sample() -> None:
    found = spread([0.03, 0.01, 0.02, 0.05, 0.04])
    assert (found.count, found.median) == (5, 0.03)
    assert (found.q1, found.q3) == (0.02, 0.04)
    assert found.low <= found.median <= found.high


def test_one_value_is_its_own_interval() -> None:
    found = spread([0.5])
    assert (found.low, found.median, found.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("count", [20, 60, 400])
def test_equal_speeds_are_rarely_distinguished(memory: float, count: int) -> None:
    """At most 1 in 20 false verdicts, also when a busy machine drifts."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        before = spread(noisy(rng, count, 0.01, memory))
        now = spread(noisy(rng, count, 0.01, memory))
        wrong += speedup(before, now).supported
    assert wrong <= 10


def test_a_real_difference_is_found() -> None:
    rng = np.random.default_rng(0)
    before, now = noisy(rng, 100, 0.014, 0.3), noisy(rng, 100, 0.010, 0.3)
    change = speedup(spread(before), spread(now))
    assert change.supported
    assert change.low < 1.4 < change.high
    assert change.ratio == pytest.approx(1.4, rel=0.15)
    assert not speedup(spread(before[:4]), spread(now[:4])).supported


def test_samples_that_are_far_apart_are_distinguished_in_spite_of_outliers() -> None:
    """1.3 s and 6 s a step, but for a few: the medians' intervals reach as far as those."""
    before = spread([7.0, 6.5, 6.0] + [1.2 + 0.01 * at for at in range(21)])
    now = spread([0.9, 1.0, 1.1] + [5.5 + 0.04 * at for at in range(21)])
    change = speedup(before, now)
    assert change.low < 1.0 < change.high
    assert change.supported
    assert change.ratio == pytest.approx(before.median / now.median)
    near = spread([0.9, 1.0, 1.1] + [1.45 + 0.01 * at for at in range(21)])
    assert not speedup(before, near).supported, "no further apart than each is wide"


def test_a_difference_below_one_percent_is_not_worth_a_verdict() -> None:
    change = speedup(spread([1.005] * 50), spread([1.0] * 50))
    assert not change.supported
