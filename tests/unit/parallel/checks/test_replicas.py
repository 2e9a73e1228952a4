"""A number for the bits of a tensor: another one for any other bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from workbench.parallel.checks.replicas import _sum_of_words, checksums

TYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.complex64),
    *(torch.int16, torch.int64, torch.bool, torch.uint8),
)


def number(tensor: torch.Tensor) -> int:
    (found,) = checksums([("it", tensor)]).values()
    return found[1]


def by_words(tensor: torch.Tensor) -> int:
    """What a GPU computes."""
    return _sum_of_words(tensor.detach().contiguous().reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("number", [number, by_words])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_any_other_bit_is_seen(number: Callable[[torch.Tensor], int], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for size in (1, 7, 5_000, 40_001):
        tensor = torch.randn(size, generator=generator).mul(3).to(dtype)
        assert number(tensor) == number(tensor.clone())
        for at in {0, size // 2, size - 1}:
            other = tensor.clone()
            other.view(torch.uint8).view(size, -1)[at, -1] ^= 1
            assert number(other) != number(tensor)


@pytest.mark.parametrize("number", [number, by_words])
def test_what_is_equal_to_the_eye_is_not(number: Callable[[torch.Tensor], int]) -> None:
    zero = torch.zeros(3)
    assert number(zero) != number(-zero)
    rows = torch.randn(64, 1024, generator=torch.Generator().manual_seed(0))
    exchanged = rows[torch.arange(63, -1, -1)]
    assert number(exchanged) != number(rows)
    assert number(rows.t().contiguous().t()) == number(rows)
    assert number(rows.reshape(-1)[1:]) == number(rows.reshape(-1)[1:].clone())
    assert number(torch.empty(0)) == number(torch.empty(0))


def test_what_has_no_bits_to_read_is_left_out() -> None:
    lazy = nn.LazyLinear(3)
    sparse = torch.eye(3).to_sparse()
    assert checksums([*lazy.named_parameters(), ("sparse", sparse)]) == {}
    assert checksums([("a", torch.zeros(2)), ("b", torch.zeros(3))])["a"][0] == (2,)
