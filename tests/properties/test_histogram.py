"""The histogram of a gradient, for values nobody thought of."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from workbench.graph.backward.cpu_batch import SmallGradients
from workbench.graph.backward.device_batch import Pending
from workbench.graph.backward.gradient_stats import combine, measure, parts_of
from workbench.graph.backward.histogram import Histograms, bins_of_each

values = arrays.arrays(np.float64, st.integers(1, 60))


def measured(gradient):
    """By each of the three ways a gradient is measured."""
    tensor = torch.from_numpy(gradient)
    pending, small = Pending(), SmallGradients()
    for part in parts_of(tensor):
        pending.add(0, part)
    small.add(0, tensor, has_rows=False)
    ((_, later),), ((_, together),) = pending.read(), small.read()
    histograms = Histograms()
    at_once = combine([measure(part, histograms) for part in parts_of(tensor)])
    histograms.read()
    return [at_once, later, together]


def power_of(value):
    """``floor(log10(value))`` without rounding; what is written 1e23 counts as a power of ten."""
    below = Decimal(value).adjusted()
    return below + (below < 308 and value >= float(f"1e{below + 1}"))


@settings(max_examples=200, deadline=None)
@given(values)
def test_zeros_non_finite_and_bins_are_all_there_is(gradient):
    kept = np.abs(gradient[np.isfinite(gradient) & (gradient != 0)])
    exact = Counter(map(power_of, kept.tolist()))
    for found in measured(gradient):
        total = found.zeros + found.non_finite + sum(number for _, number in found.bins)
        assert total == pytest.approx(len(gradient))
        assert dict(found.bins) == exact


@settings(max_examples=100, deadline=None)
@given(st.lists(values, min_size=1, max_size=8))
def test_many_together_are_each_of_them(gradients):
    starts = np.cumsum([0, *map(len, gradients)])[:-1].tolist()
    together = bins_of_each(np.concatenate(gradients), starts)
    assert together == [bins_of_each(one, [0])[0] for one in gradients]
