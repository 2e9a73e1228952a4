"""The guard: what it sees, what it puts back, and that it changes no bit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from workbench.experiment.guard import Guard, NonFiniteError

CPU = torch.device("cpu")


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))


def test_it_puts_back_buffers_and_random_state() -> None:
    net = model()
    guard = Guard(net, CPU)
    guard.remember()
    first = net(torch.ones(3, 4))
    guard.restore()
    assert torch.equal(net(torch.ones(3, 4)), first)
    guard.restore()
    assert net[1].num_batches_tracked == 0  # type: ignore[index]


def test_torchs_private_kernel_is_there_and_changes_no_bit() -> None:
    net = model()
    net(torch.randn(8, 4)).square().sum().backward()
    before = [p.grad.clone() for p in net.parameters()]  # type: ignore[union-attr]
    Guard(net, CPU).check_gradients(scaled=False)
    for old, p in zip(before, net.parameters(), strict=True):
        assert p.grad is not None
        assert torch.equal(old.view(torch.int32), p.grad.view(torch.int32))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_number_anywhere_is_seen_once(bad: float) -> None:
    net = model()
    guard = Guard(net, CPU)
    net(torch.randn(8, 4)).sum().backward()
    last = list(net.parameters())[-1]
    assert last.grad is not None
    last.grad[2] = bad
    with pytest.raises(NonFiniteError, match="gradients are NaN"):
        guard.check_gradients(scaled=False)
    guard.check_gradients(scaled=True)  # a scaler deals with it
    last.grad[2] = 0.0
    guard.check_gradients(scaled=False)


def test_mixed_types_and_sparse_gradients_are_looked_at_too() -> None:
    net = nn.ModuleDict({"e": nn.Embedding(5, 3, sparse=True), "l": nn.Linear(3, 2).double()})
    guard = Guard(net, CPU)
    out = net["l"](net["e"](torch.tensor([1, 1, 4])).double())
    out.sum().backward()
    guard.check_gradients(scaled=False)
    gradient = net["e"].weight.grad
    assert isinstance(gradient, torch.Tensor)
    net["e"].weight.grad = gradient * math.inf
    with pytest.raises(NonFiniteError):
        guard.check_gradients(scaled=False)


@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (math.inf, "infinite")])
def test_the_loss_is_read_on_the_cpu(value: float, word: str) -> None:
    guard = Guard(model(), CPU)
    assert guard.check_loss(torch.tensor(0.5)) == 0.5
    with pytest.raises(NonFiniteError, match=f"loss is {word}"):
        guard.check_loss(torch.tensor(value))
