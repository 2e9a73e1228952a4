"""Gradients over the powers of ten: of one, of many together, from a device, and in a record."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

import workbench as wb
from tests.unit.graph.backward.test_gradient_stats import GRADIENTS, later, stats
from workbench.graph.backward.complete_record import with_gradients
from workbench.graph.backward.cpu_batch import SmallGradients
from workbench.graph.backward.gradient_stats import PIECE
from workbench.graph.backward.gradient_watch import GradientWatch
from workbench.graph.backward.histogram import bins_of_each
from workbench.graph.capture.record_builder import Origin, build_record
from workbench.graph.core.walk import walk


def counted(gradient):
    """The same, value by value."""
    dense = gradient.detach().to_dense() if gradient.layout != torch.strided else gradient.detach()
    values = (dense.abs() if dense.is_complex() else dense.double()).flatten().tolist()
    kept = [abs(value) for value in values if value and math.isfinite(value)]
    return tuple(sorted(Counter(math.floor(math.log10(value)) for value in kept).items()))


@pytest.mark.parametrize("read", [stats, later])
@pytest.mark.parametrize("name", GRADIENTS)
def test_every_kind_of_gradient(name, read):
    assert dict(read(GRADIENTS[name]).bins) == pytest.approx(dict(counted(GRADIENTS[name])))


def test_small_ones_together():
    small = SmallGradients()
    gradients = [torch.randn(size) * 10.0**-size for size in (1, 2, 30, 2000)]
    gradients += [torch.zeros(5), torch.tensor([math.nan, math.inf, 0.02])]
    for row, gradient in enumerate(gradients):
        small.add(row, gradient, has_rows=False)
    for row, found in small.read():
        assert found.bins == counted(gradients[row])


def test_powers_of_ten_belong_to_the_bin_they_begin():
    values = np.array([1e-3, 1.0, 10.0, 999.0, 1000.0, -1e-3, 0.0, np.nan, -np.inf, 5e-324])
    assert bins_of_each(values, [0]) == [((-324, 1), (-3, 2), (0, 1), (1, 1), (2, 1), (3, 1))]


@pytest.mark.parametrize(("toward", "lower"), [(0.0, 1), (math.inf, 0), (None, 0)])
def test_every_power_of_ten_and_its_neighbours(toward, lower):
    powers = range(-320, 309)
    values = np.array([float(f"1e{power}") for power in powers])
    values = values if toward is None else np.nextafter(values, toward)
    assert bins_of_each(values, [0]) == [tuple((power - lower, 1) for power in powers)]


def test_the_ends_of_float32():
    values = np.array([1.5e-45, 1.1e-38, 1.2e-38, 3.3e38, 3.5e38])
    assert bins_of_each(values, [0]) == [((-45, 1), (-38, 2), (38, 2))]


def test_many_wide_ones_do_not_need_a_table_of_all_powers():
    values = np.tile([1e-300, 1e300], 10_000)
    found = bins_of_each(values, range(20_000))
    assert found[:2] == [((-300, 1),), ((300, 1),)]
    assert len(found) == 20_000


@pytest.mark.parametrize("read", [stats, later])
def test_a_large_one_is_estimated_and_adds_up(read):
    torch.manual_seed(0)
    gradient = torch.randn(PIECE + 7).relu()
    gradient[5] = math.nan
    found = read(gradient)
    total = found.zeros + found.non_finite + sum(number for _, number in found.bins)
    assert total == pytest.approx(found.size)
    exact = dict(counted(gradient))
    for power, number in found.bins:
        assert number / found.size == pytest.approx(exact[power] / found.size, abs=0.04)


def test_a_record_has_one_row_per_power_of_each_gradient():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 3))
    with wb.graph(model) as view:
        model(torch.randn(50, 64)).square().mean().backward()
    record = view.record
    shares = np.zeros(len(record.node_type))
    np.add.at(shares, record.bin_node, record.bin_share)
    measured = record.node_gradient_non_finite >= 0
    assert (shares[measured] + record.node_gradient_zeros[measured]) == pytest.approx(1, abs=1e-5)
    assert not shares[~measured].any()
    leaf = next(row for row, node in enumerate(record.nodes) if node.name == "2.weight")
    mine = record.bin_node == leaf
    expected = counted(model[2].weight.grad)
    assert tuple(record.bin_power[mine]) == tuple(power for power, _ in expected)
    size = model[2].weight.numel()
    assert record.bin_share[mine] == pytest.approx([number / size for _, number in expected])


def test_the_scale_of_a_gradient_scaler_is_divided_out():
    weight = torch.tensor([0.5, 0.002], requires_grad=True)
    large = torch.full((3000,), 0.03, requires_grad=True)
    loss = (weight.square().sum() + large.square().sum()) / 2
    graph = walk(loss.grad_fn)
    watch = GradientWatch(graph, scale=65536.0)
    record = build_record(loss, Origin({}), graph=graph)
    (loss * 65536.0).backward(inputs=[weight, large])
    record = with_gradients(record, watch)
    of = {shape: record.strings.index(shape) for shape in ("2", "3000")}
    for shape, powers in {"2": [-3, -1], "3000": [-2]}.items():
        leaves = (record.node_shape == of[shape]) & (record.node_kind == 2)
        assert record.bin_power[np.isin(record.bin_node, np.flatnonzero(leaves))].tolist() == powers
