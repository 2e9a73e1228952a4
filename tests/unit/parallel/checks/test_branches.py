from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from workbench.parallel.checks.branches import AsksItsData

ASKING: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.sum() > 0),
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "equal": lambda x: torch.equal(x, x + 1),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.detach().numpy().max(),
    "asarray": np.asarray,
    "dlpack": np.from_dlpack,
}
NOT_ASKING: dict[str, Callable[[torch.Tensor], object]] = {
    "matmul": lambda x: x @ x.T,
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "gather": lambda x: x[torch.arange(2)],
    "shape": lambda x: x if x.shape[0] > 1 else -x,
    "dropout": torch.nn.functional.dropout,
}


@pytest.mark.parametrize("name", ASKING)
def test_what_reads_values_is_noticed(name: str) -> None:
    with AsksItsData() as asks:
        ASKING[name](torch.randn(3, 3))
    assert asks.found


@pytest.mark.parametrize("name", NOT_ASKING)
def test_what_reads_none_is_not(name: str) -> None:
    with AsksItsData() as asks:
        NOT_ASKING[name](torch.randn(3, 3))
    assert not asks.found
