"""What a step does with parameters that FSDP does not support, noticed by running it once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from workbench.modes.core.model_blocks import find_blocks
from workbench.parallel.checks.parameter_use import ParameterUse, Whole, unshardable, why_not_in


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(torch.relu(self.a(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head, self.other = nn.Linear(8, 5), nn.Linear(8, 5)
        self.held = [self.head.weight]
        self.steps = 0

    def forward(self, x: torch.Tensor, act: Callable[[Any], Any] | None = None) -> torch.Tensor:
        if act is not None:
            act(self)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def pairs(net: Net) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
    return zip(net.other.parameters(), net.head.parameters(), strict=True)


def by_data(net: Net) -> None:
    for mine, theirs in pairs(net):
        mine.data = mine.data * 0.9 + theirs.data


@torch.no_grad()
def in_place(net: Net) -> None:
    for mine, theirs in pairs(net):
        mine.mul_(0.9).add_(theirs)


def past_the_count(net: Net) -> None:
    for mine, theirs in pairs(net):
        mine.data.mul_(0.9).add_(theirs.data)


@torch.no_grad()
def together(net: Net) -> None:
    torch._foreach_lerp_(list(net.other.parameters()), list(net.head.parameters()), 0.1)


@torch.no_grad()
def by_a_view(net: Net) -> None:
    net.other.weight.detach()[0].fill_(1.0)
    torch.add(net.head.bias, 1, out=net.other.bias)


def of_a_state(net: Net) -> None:
    net.other.load_state_dict(net.head.state_dict())


def by_a_copy(net: Net) -> None:
    net.other.weight.data.copy_(net.head.weight.data)
    nn.init.zeros_(net.other.bias)


def by_another(net: Net) -> None:
    net.other.weight = nn.Parameter(torch.zeros(5, 8))
    net.other.bias = nn.Parameter(torch.zeros(5))


OTHER = {"other.weight", "other.bias"}
WRITES: dict[str, Callable[[Net], None]] = {
    "in place": in_place,
    "by data": by_data,
    "past torch's count": past_the_count,
    "together": together,
    "by a view and out=": by_a_view,
    "of a state": of_a_state,
    "by a copy": by_a_copy,
    "by another parameter": by_another,
}


@pytest.mark.parametrize("how", WRITES)
def test_a_write_is_found_and_undone(how: str) -> None:
    net = Net()
    before, objects = copy.deepcopy(net.state_dict()), list(net.parameters())
    with ParameterUse(net, find_blocks(net)) as use:
        net(torch.randn(4, 8), WRITES[how])
    assert use.written == OTHER
    assert not use.held
    assert not use.outside
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
    assert all(one is other for one, other in zip(net.parameters(), objects, strict=True))
    assert not net._forward_hooks
    assert not net._forward_pre_hooks


def metadata(net: Net) -> None:
    for parameter in net.parameters():
        assert parameter.shape
        assert parameter.numel()
        assert parameter.device == torch.device("cpu")
        assert parameter.is_floating_point()
        assert parameter.dtype is torch.float32
        assert parameter.requires_grad


def test_an_ordinary_step_is_none_of_it() -> None:
    net = Net()
    parametrizations.weight_norm(net.head)
    parametrizations.spectral_norm(net.blocks[0].a)
    torch.nn.utils.spectral_norm(net.blocks[1].a)
    net.held = []
    with ParameterUse(net, find_blocks(net)) as use:
        net(torch.randn(4, 8), metadata).sum()
    assert not use.written | use.held | use.outside
    assert not unshardable(net, find_blocks(net))


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2
            ),
            (torch.randn(2, 3, 8),),
        ),
        (lambda: nn.MultiheadAttention(8, 2), (torch.randn(2, 3, 8),) * 3),
        (lambda: nn.LSTM(8, 8, 2, bidirectional=True), (torch.randn(2, 3, 8),)),
        (lambda: nn.Sequential(nn.Bilinear(4, 4, 3)), None),
    ],
    ids=["transformer", "attention", "LSTM", "bilinear"],
)
@pytest.mark.parametrize("train", [True, False])
def test_layers_of_torch_are_none_of_it(
    model: Callable[[], nn.Module], inputs: tuple[torch.Tensor, ...] | None, *, train: bool
) -> None:
    made = model().train(train)
    with torch.set_grad_enabled(train), ParameterUse(made, find_blocks(made)) as use:
        if inputs is None:
            made[0](torch.randn(2, 4), torch.randn(2, 4))
        else:
            made(*inputs)
    assert not use.written | use.held
    assert not use.outside or inputs is None  # a child of a Sequential, called past it


def test_other_ways_to_a_parameter_are_found() -> None:
    net = Net()
    with ParameterUse(net, find_blocks(net)) as use:
        loss = net(torch.randn(4, 8), lambda net: net.held[0].sum()).sum()
        loss = loss + net.other.weight.norm()
        net.blocks[1].run(torch.randn(4, 8))
        assert net.head.bias.tolist()
    assert use.held == {"head.weight"}
    blocks = {f"blocks.1.{layer}.{kind}" for layer in "ab" for kind in ("weight", "bias")}
    assert use.outside == {"other.weight", "head.bias", *blocks}
    assert not use.written


def test_a_block_that_another_calls_past_its_forward_is_found() -> None:
    net = Net()
    with ParameterUse(net, find_blocks(net)) as use:
        net(torch.randn(4, 8), lambda net: net.blocks[0].run(torch.randn(4, 8)))
    assert {name.partition(".a")[0].partition(".b.")[0] for name in use.outside} == {"blocks.0"}


def test_what_raises_leaves_the_model_as_it_was() -> None:
    net = Net()
    objects, value = list(net.parameters()), net.other.weight.clone()

    def fails(net: Net) -> None:
        in_place(net)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), ParameterUse(net, find_blocks(net)):
        net(torch.randn(4, 8), fails)
    assert all(one is other for one, other in zip(net.parameters(), objects, strict=True))
    assert torch.equal(net.other.weight, value)
    net(torch.randn(4, 8)).sum().backward()
    assert net.head.weight.grad is not None


class Odd(Net):
    def __init__(self) -> None:
        super().__init__()
        self.number = nn.Parameter(torch.ones(()))
        self.ints = nn.Parameter(torch.ones(3, dtype=torch.int64), requires_grad=False)
        self.complex = nn.Parameter(torch.ones(3, dtype=torch.complex64))
        self.sparse = nn.Parameter(torch.eye(3).to_sparse(), requires_grad=False)
        self.none = nn.Parameter(torch.ones(0, 3))
        self.strided = nn.Parameter(torch.ones(4, 3).t())
        self.wide = nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.ones(2, dtype=torch.float64), requires_grad=False)
        self.blocks[1].a.weight = self.blocks[0].a.weight
        self.other.bias.data = self.head.bias.data
        self.register_buffer("follows", self.head.weight.data[0])
        self.blocks[2].b.weight.register_hook(lambda gradient: gradient * 0)


def test_what_cannot_be_sharded_is_known_without_a_look() -> None:
    net = Odd()
    assert unshardable(net, find_blocks(net)) == {
        "number": Whole.NUMBER,
        "ints": Whole.KIND,
        "complex": Whole.KIND,
        "sparse": Whole.KIND,
        "none": Whole.KIND,
        "strided": Whole.LAYOUT,
        "wide": Whole.DTYPE,
        "blocks.0.a.weight": Whole.SHARED,
        "head.weight": Whole.SHARED,
        "head.bias": Whole.SHARED,
        "other.bias": Whole.SHARED,
        "blocks.2.b.weight": Whole.HOOKED,
    }


def test_a_layout_in_16_bits_is_refused_what_cannot_be_gathered() -> None:
    assert not why_not_in("", {"conv.weight": Whole.LAYOUT})
    assert not why_not_in("bf16", {"scale": Whole.NUMBER})
    said = why_not_in("bf16", {"scale": Whole.NUMBER, "conv.weight": Whole.LAYOUT})
    assert "conv.weight cannot be gathered: it is not contiguous" in said
    assert "fsdp:2+bf16 is autocast" in said
