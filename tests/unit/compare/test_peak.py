"""What a step has allocated at most, against what is known to be allocated."""

from __future__ import annotations

import torch
from torch import nn

from workbench.compare.peak import allocated_at_most, held_bytes

MIB = 2**20


def test_the_peak_is_that_of_what_lives_at_once() -> None:
    with torch.profiler.profile(profile_memory=True) as profile:
        a = torch.empty(MIB, dtype=torch.float32)
        b = torch.empty(2 * MIB, dtype=torch.float32)
        del a
        c = torch.empty(MIB // 2, dtype=torch.float32)
        del b, c
    assert 12 * MIB <= allocated_at_most(profile) < 12 * MIB + 4096


def test_what_only_frees_has_no_peak() -> None:
    a = torch.empty(MIB)
    with torch.profiler.profile(profile_memory=True) as profile:
        del a
    assert allocated_at_most(profile) == 0


def test_weights_gradients_and_state_are_held_once() -> None:
    model = nn.Linear(100, 50, bias=False)
    tied = nn.Linear(100, 50, bias=False)
    tied.weight = model.weight
    both = nn.Sequential(model, tied, nn.BatchNorm1d(50))
    optimizer = torch.optim.Adam(model.parameters())
    assert held_bytes(both, optimizer) == 4 * (5000 + 4 * 50) + 8
    model(torch.ones(2, 100)).sum().backward()
    optimizer.step()
    assert held_bytes(both, optimizer) == 4 * (4 * 5000 + 4 * 50 + 1) + 8
