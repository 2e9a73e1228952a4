"""Parts of batches: together they are the batch, whatever sizes and positions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from workbench.experiment.data import data_source
from workbench.experiment.sources import DataError, DataSource
from workbench.parallel.batches import Part, RankBatches, RankSource


def source(num_samples: int, batch_size: int, kind: str) -> DataSource:
    inputs, targets = torch.arange(num_samples * 2).view(-1, 2), torch.arange(num_samples)
    if kind == "arrays":
        data: Any = (inputs, targets)
    else:
        drop = kind == "whole batches"
        dataset = TensorDataset(inputs, targets)
        data = DataLoader(dataset, batch_size, shuffle=True, drop_last=drop)
    return data_source(data, batch_size=batch_size, seed=7, shuffle=True)


def parts_of(made: DataSource, world_size: int, *where: int, skip: int) -> list[list[Part]]:
    """Parts of all ranks, batch by batch."""
    ranks = [
        RankSource(made, rank, world_size).batches(*where, skip=skip) for rank in range(world_size)
    ]
    return [list(parts) for parts in zip(*map(list, ranks), strict=True)]


@given(
    num_samples=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    world_size=st.integers(1, 6),
    kind=st.sampled_from(["arrays", "a loader", "whole batches"]),
    epoch=st.integers(0, 3),
    data=st.data(),
)
def test_parts_make_the_batch(
    num_samples: int, batch_size: int, world_size: int, kind: str, epoch: int, data: st.DataObject
) -> None:
    if kind == "whole batches" and num_samples < batch_size:
        num_samples = batch_size
    made = source(num_samples, batch_size, kind)
    skip = data.draw(st.integers(0, num_samples))
    start = data.draw(st.integers(0, made.steps_after(skip)))
    whole = list(made.batches(epoch, start, skip=skip))
    parts = parts_of(made, world_size, epoch, start, skip=skip)
    assert len(parts) == len(whole)
    for (inputs, targets), shares in zip(whole, parts, strict=True):
        mine = [share for share in shares if share.num_samples]
        assert torch.equal(torch.cat([share.batch[0] for share in mine]), inputs)
        assert torch.equal(torch.cat([share.batch[1] for share in mine]), targets)
        sizes = [share.num_samples for share in shares]
        assert sum(sizes) == len(targets)
        assert sizes[0] > 0, "buffers are those of the first rank"
        shared = [size for size in sizes if size]
        assert max(shared) - min(shared) <= 1
        if len(targets) < batch_size:
            assert min(shared) > 1 or len(targets) == 1, "batch norm refuses a sample alone"
        else:
            assert len(shared) == min(world_size, len(targets))
        # who has none gets some all the same, or others would wait for it
        stand_in = min(2, len(targets))
        assert all(len(share.batch[1]) == (share.num_samples or stand_in) for share in shares)


def test_positions_are_those_of_whole_batches() -> None:
    made = source(23, 4, "arrays")
    part = RankSource(made, 1, 3)
    assert (part.steps_per_epoch, part.batch_size, part.num_samples) == (6, 4, 23)
    assert part.steps_after(9) == made.steps_after(9)


def test_an_order_of_its_own_is_refused() -> None:
    batches = [(torch.zeros(2, 1), torch.zeros(2))]
    with pytest.raises(DataError, match="list makes its own batches, so 2 ranks"):
        RankSource(data_source(batches, batch_size=2, seed=0, shuffle=True), 0, 2)


@given(
    num_samples=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    world_size=st.integers(1, 6),
    kind=st.sampled_from(["arrays", "a loader"]),
)
def test_whole_batches_are_shared_out_and_none_is_counted_twice(
    num_samples: int, batch_size: int, world_size: int, kind: str
) -> None:
    whole = source(num_samples, batch_size, kind)
    ranks = [list(RankBatches(whole, rank, world_size).batches(0)) for rank in range(world_size)]
    assert len({len(parts) for parts in ranks}) == 1, "a rank would wait for the others"
    rounds = zip(*ranks, strict=True)
    counted = [part.batch[1] for parts in rounds for part in parts if part.num_samples]
    expected = [targets for _, targets in whole.batches(0)]
    assert len(counted) == len(expected)
    assert all(map(torch.equal, counted, expected))
