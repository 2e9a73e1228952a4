"""Bytes of tensors, whose storages can be resized afterwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from workbench.experiment.state.host_bytes import host_bytes
from workbench.experiment.state.object_contents import Contents
from workbench.experiment.state.value_snapshots import encoded
from workbench.parallel.checks.replicas import checksums
from workbench.parallel.transfer.job_pickle import to_known


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4),
        torch.randn(3, 4).t(),
        torch.randn(6)[::2],
        torch.randn(()),
        torch.randn(0),
        torch.arange(5) > 2,
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3)._neg_view(),
        nn.Parameter(torch.randn(3)),
    ],
)
def test_they_are_numpys(tensor: torch.Tensor) -> None:
    expected = np.ascontiguousarray(tensor.numpy(force=True)).tobytes()
    assert host_bytes(tensor).tobytes() == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_of_types_that_numpy_does_not_know(dtype: torch.dtype) -> None:
    tensor = torch.randn(5).to(dtype)
    again = torch.frombuffer(bytearray(host_bytes(tensor).tobytes()), dtype=dtype)
    assert torch.equal(again.float(), tensor.float())


def _fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.zeros(3)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3).to_sparse(),
        torch.zeros(3, device="meta"),
        nn.UninitializedBuffer(),
        _fake(),
    ],
)
def test_of_others_there_are_none(tensor: torch.Tensor) -> None:
    with pytest.raises(RuntimeError):
        host_bytes(tensor)


def test_they_are_not_copied() -> None:
    tensor = torch.zeros(4)
    found = host_bytes(tensor)
    tensor += 1
    assert found.any()


@pytest.mark.parametrize(
    "look",
    [
        host_bytes,
        Contents,
        encoded,
        lambda tensor: to_known(tensor, {}, to_compare=True),
        lambda tensor: checksums([("weight", tensor)]),
    ],
    ids=["bytes", "contents", "value", "packed to compare", "checksum"],
)
def test_who_looks_at_a_tensor_leaves_it_as_resizable_as_it_was(
    look: Callable[[torch.Tensor], object],
) -> None:
    tensor = torch.randn(4)
    look(tensor)
    tensor.resize_(8)
    tensor.untyped_storage().resize_(0)
