"""Torch's kernels over many tensors, against one tensor at a time."""

import pytest
import torch

from workbench.torch_private.kernels import copy_all, flag_non_finite, norms_of


@pytest.mark.parametrize("order", [2, torch.inf])
def test_the_norm_of_each(order: float) -> None:
    tensors = [torch.randn(5), torch.randn(2, 3), torch.randn(())]
    for found, tensor in zip(norms_of(tensors, order), tensors, strict=True):
        torch.testing.assert_close(found, torch.linalg.vector_norm(tensor, order))


def test_the_norm_of_16_bits_is_added_up_in_32() -> None:
    large = torch.full((10_000,), 100.0, dtype=torch.float16)
    (found,) = norms_of([large], 2, dtype=torch.float32)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor(10_000.0))


def test_each_is_copied_into_the_one_at_its_place() -> None:
    into, source = [torch.zeros(2), torch.zeros(3)], [torch.ones(2), torch.full((3,), 2.0)]
    copy_all(into, source)
    assert [one.tolist() for one in into] == [[1.0, 1.0], [2.0, 2.0, 2.0]]


@pytest.mark.parametrize(("value", "raised"), [(1.0, 0.0), (torch.inf, 1.0), (torch.nan, 1.0)])
def test_what_is_not_finite_raises_the_flag(value: float, raised: float) -> None:
    tensors = [torch.ones(3), torch.tensor([1.0, value])]
    flag = torch.zeros(1)
    flag_non_finite(tensors, flag, torch.ones(()))
    assert flag.item() == raised
    assert tensors[0].tolist() == [1.0, 1.0, 1.0]
