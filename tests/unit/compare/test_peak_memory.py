"""What a step has allocated at most, against what is known to be allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from workbench.compare.peak_memory import Held, profiled_on_cpu

MIB = 2**20
SGD = torch.optim.SGD
_MOMENTS: dict[type[torch.optim.Optimizer], int] = {
    SGD: 0,
    torch.optim.AdamW: 2,
    torch.optim.Adagrad: 1,
}
"""How many tensors of the size of a weight are its state."""


def held(*modules: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    return Held(*modules, optimizer=optimizer).num_bytes


def test_weights_gradients_and_state_are_held_once() -> None:
    model = nn.Linear(100, 50, bias=False)
    tied = nn.Linear(100, 50, bias=False)
    tied.weight = model.weight
    both = nn.Sequential(model, tied, nn.BatchNorm1d(50))
    optimizer = torch.optim.Adam(model.parameters())
    assert held(both, optimizer=optimizer) == 4 * (5000 + 4 * 50) + 8
    model(torch.ones(2, 100)).sum().backward()
    optimizer.step()
    assert held(both, optimizer=optimizer) == 4 * (4 * 5000 + 4 * 50 + 1) + 8


class Odd(nn.Module):
    """Tensors of one memory, tensors that are no buffers, and a parameter without elements."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1000))
        self.data_tied = nn.Parameter(torch.empty(0))
        self.data_tied.data = self.weight.data
        self.none = nn.Parameter(torch.empty(0))
        self.register_buffer("wide", torch.ones(10, 1).expand(10, 500))
        self.register_buffer("view", self.weight.detach()[500:])
        self.table = {"kept": [torch.ones(300)]}


def test_views_expanded_and_tied_tensors_are_one_memory_and_plain_attributes_count() -> None:
    model = Odd()
    assert held(model, optimizer=SGD(model.parameters(), 0.1)) == 4 * (1000 + 10 + 300)


def test_state_in_lists_and_gradients_that_are_sparse_are_counted() -> None:
    model = nn.Embedding(100, 10, sparse=True)
    optimizer = SGD(model.parameters(), 0.1)
    model(torch.arange(5)).sum().backward()
    assert held(model, optimizer=optimizer) == 4 * 1000 + 8 * 5 + 4 * 50
    line = nn.Linear(100, 10, bias=False)
    lbfgs = torch.optim.LBFGS(line.parameters(), max_iter=1)

    def closure() -> torch.Tensor:
        lbfgs.zero_grad()
        loss = line(torch.ones(1, 100)).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        lbfgs.step(closure)
    directions: list[torch.Tensor] = lbfgs.state[line.weight]["old_dirs"]
    assert held(line, optimizer=lbfgs) >= 4 * 1000 * (2 + len(directions)) > 4 * 2000


def trained(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, *, to_none: bool = True
) -> Callable[[], None]:
    """A step whose gradients are made anew, unless ``to_none`` is False."""

    def step() -> None:
        optimizer.zero_grad(set_to_none=to_none)
        model(x).sum().backward()
        optimizer.step()

    step()
    return step


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("kind", [SGD, torch.optim.AdamW, torch.optim.Adagrad])
def test_gradients_are_counted_once_whether_they_are_made_anew_or_kept(
    to_none: bool, kind: type[torch.optim.Optimizer]
) -> None:
    model = nn.Linear(1024, 1024, bias=False)  # 4 MiB, beside which activations are nothing
    optimizer = kind(model.parameters(), lr=0.1, foreach=False)  # pyright: ignore[reportCallIssue] - all three take it
    step = trained(model, optimizer, torch.ones(1, 1024), to_none=to_none)
    moments = _MOMENTS[kind]
    # an update's temporaries are of that size too, by chance as many
    temporaries = _MOMENTS[kind]
    kept = 0 if to_none else 1  # a gradient is made before it is added to the one that is kept
    most, events = profiled_on_cpu(step, model, optimizer=optimizer)
    beside = max(temporaries, kept)
    assert most / (4 * MIB) == pytest.approx(2 + moments + beside, abs=0.02)
    assert sum(event.name == "aten::linear" for event in events) == 1


class Assigns(nn.Module):
    """Assigns its buffer in every forward, and keeps what it was given last."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 1024 * 1024, bias=False)
        self.register_buffer("mean", torch.zeros(1024 * 1024))
        self.last: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.line(x)
        self.mean = self.mean + 1
        self.last = [y.detach().clone()]
        return y


def test_what_a_forward_assigns_is_counted_once() -> None:
    model = Assigns()
    step = trained(model, SGD(model.parameters(), 0.1), torch.ones(1, 8))
    most, _ = profiled_on_cpu(step, model, optimizer=SGD(model.parameters(), 0.1))
    # weight and gradient of 8 each; mean, last, and in backward the expanded gradient of the sum
    assert most / (4 * MIB) == pytest.approx(8 + 8 + 1 + 1 + 1 + 1, abs=1.02)
    assert most / (4 * MIB) < 21.1  # a second gradient would be 8 more


@pytest.fixture
def one_rank() -> Iterator[None]:
    store = torch.distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage] - documented there
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_the_buckets_of_ddp_are_counted(one_rank: None) -> None:
    model = nn.Linear(1024, 1024, bias=False)
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = SGD(model.parameters(), 0.1)
    step = trained(wrapped, optimizer, torch.ones(1, 1024))
    for _ in range(3):  # buckets are made anew after the first step
        step()
    most, _ = profiled_on_cpu(step, wrapped, optimizer=optimizer)
    assert most / (4 * MIB) == pytest.approx(3, abs=0.05)
    seen = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    step = trained(seen, optimizer, torch.ones(1, 1024))
    for _ in range(3):
        step()
    most, _ = profiled_on_cpu(step, seen, optimizer=optimizer)
    # the gradient is in the bucket; it is made outside of it and then copied there
    assert most / (4 * MIB) == pytest.approx(3, abs=0.05)
