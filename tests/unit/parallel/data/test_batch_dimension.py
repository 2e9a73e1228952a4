"""Where the samples are is found by making the same of fewer, and cut and joined there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.parallel.data.batch_dimension import (
    ITEMS,
    RowsError,
    cut,
    find_rows,
    first_rows,
    has_items,
    joined_items,
    leaves,
    with_leaves,
)


def made(num: int) -> Any:
    """A batch of samples 0 to ``num``, nested in each way that a batch may be."""
    rows = torch.arange(num)
    return {
        "first": rows[:, None].expand(num, 3),
        "second": rows.expand(4, num),
        "flat": rows.repeat_interleave(5),
        "names": [f"sample {row}" for row in range(num)],
        "share": torch.tensor(0.5),
        "pair": (rows.float(), [rows, torch.ones(2, 2)]),
        "number": 7,
    }


def is_same(one: Any, other: Any) -> bool:
    """Whether two batches are equal, to the bit and in the types of their tensors."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


@given(num=st.integers(2, 12), data=st.data())
def test_parts_are_those_of_the_samples_alone(num: int, data: st.DataObject) -> None:
    few = data.draw(st.integers(1, num - 1))
    whole = made(num)
    rows = find_rows(whole, made(few), num, few)
    assert is_same(cut(whole, rows, 0, few, num), made(few))
    assert [at for _, at in leaves(whole, rows)] == [0, 1, 0, 0, 0]
    assert has_items(rows)
    parts = [cut(whole, rows, *place, num) for place in ((0, few), (few, num))]
    tensors = [
        torch.cat([one, other], at)
        for (one, at), (other, _) in zip(*(leaves(part, rows) for part in parts), strict=True)
    ]
    joined = with_leaves(joined_items(parts, rows), rows, tensors)
    assert is_same(joined, whole)


def test_one_that_grows_otherwise_is_named() -> None:
    boxes = torch.zeros(7, 4), torch.zeros(3, 4)  # as many as there are things in the pictures
    with pytest.raises(RowsError, match=r"shape \[7, 4\] for 4 samples and \[3, 4\] for 2"):
        find_rows(*boxes, 4, 2)
    with pytest.raises(RowsError, match="has 3 items for 4 samples"):
        find_rows([1, 2, 3], [1], 4, 2)
    with pytest.raises(RowsError, match=r"shape \[7, 4\] for 4 samples"):
        first_rows(boxes[0], 4)


def test_without_fewer_samples_are_in_the_first_dimension() -> None:
    assert find_rows(torch.zeros(3, 2), torch.zeros(3, 2), 3, 3) == 0
    assert first_rows(["a", "b"], 2) == ITEMS
    assert first_rows(torch.tensor(1.0), 2) is None


def test_a_time_that_grows_as_the_samples_do_is_no_dimension_of_samples() -> None:
    assert find_rows(torch.zeros(30, 15, 4), torch.zeros(14, 7, 4), 15, 7) == 1
