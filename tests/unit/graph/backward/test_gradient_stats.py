"""Four numbers of a gradient of any kind, beside the same numbers of its dense copy."""

from __future__ import annotations

import math

import pytest
import torch

from workbench.graph.backward.device_batch import Pending
from workbench.graph.backward.gradient_stats import (
    EXACT_ZEROS,
    PIECE,
    combine,
    is_finite,
    measure,
    parts_of,
)
from workbench.graph.backward.histogram import Histograms


def stats(gradient, rows_of=None):
    histograms = Histograms()
    found = [measure(part, histograms, rows_of) for part in parts_of(gradient)]
    histograms.read()
    return combine([one._replace(bins=tuple(one.bins)) for one in found])


def later(gradient, rows_of=None):
    pending = Pending()
    for part in parts_of(gradient):
        pending.add("g", part, rows_of)
    return combine([found for _, found in pending.read()])


def sparse():
    indices = torch.tensor([[0, 2, 2], [1, 0, 0]])
    return torch.sparse_coo_tensor(indices, torch.tensor([3.0, 1.0, 1.0]), (4, 5))


GRADIENTS = {
    "vector": torch.tensor([3.0, -4.0, 0.0]),
    "scalar": torch.tensor(-2.0),
    "all negative": torch.tensor([-1.0, -5.0, -0.5]),
    "zeros of both signs": torch.tensor([0.0, -0.0]),
    "the imaginary part of a conjugate": torch.tensor([3 + 4j, 1 - 7j]).conj().imag,
    "half": torch.full((300,), 300.0, dtype=torch.float16),
    "bfloat16": torch.tensor([1.5, 0.0, -8.0], dtype=torch.bfloat16),
    "double": torch.randn(100, dtype=torch.float64),
    "complex": torch.tensor([3 + 4j, 0j]),
    "broadcast": torch.tensor(2.0).expand(5, 7),
    "partly broadcast": torch.randn(5, 1, 3).expand(5, 7, 3),
    "channels last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "a slice": torch.randn(6, 8)[:, 2:5],
    "float8": torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn),
    "sparse": sparse(),
    "CSR": sparse().coalesce().to_sparse_csr(),
    "with a graph": torch.ones(3, requires_grad=True) * 2,
    "tiny values": torch.full((4,), 1e-30),
    "huge values": torch.full((4,), 1e30),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_every_kind_of_gradient(name):
    gradient = GRADIENTS[name]
    dense = gradient.detach().to_dense() if gradient.layout != torch.strided else gradient.detach()
    dense = dense.abs() if dense.is_complex() else dense.double()
    found = stats(gradient)
    assert found.norm == pytest.approx(dense.norm().item(), rel=1e-5)
    assert found.largest == pytest.approx(dense.abs().max().item())
    assert found.zeros == int((dense == 0).sum())
    assert (found.non_finite, found.size) == (0, dense.numel())
    assert is_finite(gradient)


@pytest.mark.parametrize("name", sorted(set(GRADIENTS) - {"tiny values", "huge values"}))
def test_what_is_read_later_is_the_same(name):
    now, then = stats(GRADIENTS[name]), later(GRADIENTS[name])
    assert then.norm == pytest.approx(now.norm, rel=1e-5)
    assert then._replace(norm=0.0) == now._replace(norm=0.0, largest=then.largest)
    assert then.largest == pytest.approx(now.largest)


def test_an_empty_gradient():
    assert stats(torch.ones(0, 3)) == (0.0, 0.0, 0.0, 0, 0, (), ())


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_gradient(layout):
    nested = torch.nested.nested_tensor(
        [torch.ones(2, 3), torch.zeros(1, 3)], layout=layout, dtype=torch.float32
    )
    found = stats(nested)
    assert found.norm == pytest.approx(6**0.5)
    assert (found.zeros, found.size) == (3, 9)


@pytest.mark.parametrize("read", [stats, later])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_non_finite_values_are_counted_and_their_rows_found(read, dtype):
    gradient = torch.ones(200, 30, dtype=dtype)
    gradient[3, 4], gradient[7, 0], gradient[7, 1] = math.nan, math.inf, -math.inf
    found = read(gradient, gradient)
    assert found.non_finite == 3
    assert found.rows == (3, 7)
    assert not is_finite(gradient)
    gradient[3, 4] = 1
    assert read(gradient, gradient).largest == math.inf
    gradient[3, 4] = math.copysign(math.nan, -1)
    assert math.isnan(read(gradient, gradient).largest)


def test_a_vector_with_one_value_per_sample_has_rows():
    gradient = torch.tensor([1.0, math.nan, 2.0])
    assert stats(gradient, gradient).rows == (1,)
    assert later(gradient, gradient).rows == (1,)


@pytest.mark.parametrize("view", ["whole", "permuted", "sliced"])
def test_a_large_gradient_is_read_in_pieces_and_its_zeros_estimated(view):
    torch.manual_seed(0)
    gradient = torch.nn.functional.dropout(torch.randn(64, PIECE // 16), 0.3)
    gradient = {"whole": gradient, "permuted": gradient.t(), "sliced": gradient[:, 5:]}[view]
    assert gradient.numel() > PIECE > EXACT_ZEROS
    found = stats(gradient)
    assert found.norm == pytest.approx(gradient.double().norm().item(), rel=1e-4)
    assert found.largest == gradient.abs().max().item()
    assert found.zeros / found.size == pytest.approx(0.3, abs=0.03)
