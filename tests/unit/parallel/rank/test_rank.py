"""Batch norm on a rank: what it goes by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from workbench.parallel.rank.rank import count_alone, normalises_parts


@pytest.fixture
def second_of_two() -> Iterator[None]:
    """A process group without other processes: nothing is sent in it."""
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("second_of_two")
def test_synchronized_batch_norm_counts_a_whole_batch_once() -> None:
    model = nn.Sequential(nn.SyncBatchNorm(2), nn.BatchNorm1d(2), nn.SyncBatchNorm(2))
    count_alone(model)
    for norm in (model[0], model[2]):
        assert dist.get_process_group_ranks(norm.process_group) == [1]


@pytest.mark.parametrize(
    ("norm", "train", "expected"),
    [
        (nn.BatchNorm1d(2), True, True),
        (nn.BatchNorm2d(2), False, False),
        (nn.BatchNorm1d(2, track_running_stats=False), True, False),
        (nn.SyncBatchNorm(2), True, False),
        (nn.InstanceNorm2d(2, track_running_stats=True), True, False),
    ],
)
def test_batch_norm_that_keeps_statistics_goes_by_a_rank_s_rows(
    norm: nn.Module, train: bool, expected: bool
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), norm).train()
    norm.train(train)
    assert normalises_parts(model) is expected
