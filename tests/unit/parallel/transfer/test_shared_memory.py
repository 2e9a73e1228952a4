"""Tensors that share memory share it again in a copy, or are refused in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.integration.parallel.support import made
from tests.unit.parallel.transfer.test_object_state import Pair
from workbench.parallel.transfer.shared_memory import refusal, shared_in, shared_moments


class Tied(nn.Module):
    """Two weights tied by ``.data``, a buffer that is a view, and a plain view of a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.c = nn.Linear(16, 5)
        self.b.weight.data = self.a.weight.data
        self.register_buffer("bank", torch.zeros(4, 3))
        self.register_buffer("row", self.bank[2])
        self.bias = self.c.bias.detach()[1:3]
        self.plain = torch.arange(6.0)
        self.tail = self.plain[4:]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(torch.relu(self.a(x))))


def test_a_copy_shares_what_was_shared(tmp_path: Path) -> None:
    pair = Pair(made(tmp_path / "runs", Tied), tmp_path)
    there: Any = pair.rank.model
    assert there.plain.tolist() == [0, 1, 2, 3, 4, 5]
    with torch.no_grad():
        there.a.weight[0, 0] = 7
        there.row.fill_(3)
        there.bias.fill_(5)
        there.tail.fill_(9)
    assert there.b.weight.detach()[0, 0] == 7
    assert there.bank[2].tolist() == [3, 3, 3]
    assert there.c.bias[1:3].tolist() == [5, 5]
    assert there.plain.tolist() == [0, 1, 2, 3, 9, 9]


def test_shards_share_nothing_and_weights_beside_each_other_are_no_ties() -> None:
    model = Tied()
    parameters = set(map(id, model.parameters()))
    tied = shared_in(model.named_parameters())
    assert [one.names for one in tied] == [["a.weight", "b.weight"]]
    assert not refusal(tied, parameters, sharded=False)
    assert "a.weight, b.weight share one memory, as by .data, and fsdp" in refusal(
        tied, parameters, sharded=True
    )
    flat = torch.zeros(8)
    assert not shared_in([("first", flat[:4]), ("second", flat[4:])])


class Aliasing(torch.optim.SGD):
    """Keeps one count for all parameters, in the state of each."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        count = torch.zeros(())
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["count"] = count


def test_moments_of_several_parameters_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(16, 5)
    optimizer = Aliasing(model.parameters(), lr=0.1)
    experiment = made(tmp_path, lambda: model, optimizer=optimizer)
    assert not shared_moments(experiment._training)
    optimizer.step()
    assert "Aliasing keeps 'count' of bias in the memory" in shared_moments(experiment._training)
    adam = made(tmp_path, lambda: nn.LSTM(16, 5), optimizer="adamw", loss="cross_entropy")
    for parameter in adam.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    adam.optimizer.step()
    assert not shared_moments(adam._training)
