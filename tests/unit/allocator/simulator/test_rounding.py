"""Sizes of blocks: a column at once as one by one, and under divisions, where 512 is not enough."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.allocator.simulator.rounding import round_size, round_sizes
from workbench.allocator.simulator.settings import MIB, NUM_DIVISIONS, AllocatorSettings

divisions = st.lists(
    st.sampled_from([0, 1, 2, 4, 8, 64]), min_size=NUM_DIVISIONS, max_size=NUM_DIVISIONS
)
near_powers = st.builds(
    lambda power, by: max(1, 2**power + by), st.integers(0, 61), st.integers(-600, 600)
)
requests = st.lists(st.one_of(near_powers, st.integers(1, 2**62)), max_size=60)


@given(requests, divisions)
def test_a_column_is_rounded_like_its_entries(asked, each):
    settings = AllocatorSettings(roundup_power2_divisions=tuple(each))
    found = round_sizes(np.array(asked, dtype=np.int64), settings)
    assert found.tolist() == [round_size(size, settings) for size in asked]


@given(st.one_of(near_powers, st.integers(1, 2**40)), divisions)
def test_what_is_rounded_stays_as_it_is(asked, each):
    """A trace gives the rounded size of a refused request, which is then asked for."""
    settings = AllocatorSettings(roundup_power2_divisions=tuple(each))
    once = round_size(asked, settings)
    assert once >= asked
    assert round_size(once, settings) == once


@pytest.mark.parametrize(
    ("number", "size"), [(0, 1_200_128), (1, 1_200_128), (2, 1_572_864), (4, 1_310_720)]
)
def test_a_power_of_two_is_divided(number, size):
    settings = AllocatorSettings(roundup_power2_divisions=(number,) * NUM_DIVISIONS)
    assert round_size(1_200_000, settings) == size
    assert round_sizes(np.array([1_200_000]), settings).tolist() == [size]


def test_a_size_that_no_gpu_has_does_not_wrap():
    found = round_sizes(np.array([0, 2**63 - 1]), AllocatorSettings())
    assert found.tolist() == [512, 2**62]
    assert round_size(MIB, AllocatorSettings()) == MIB
