"""Parts of batches: together they are the batch, whatever sizes and positions."""

from __future__ import annotations

import queue
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, TensorDataset

from workbench.experiment.data.data import data_source
from workbench.experiment.data.sources import DataError, DataSource
from workbench.parallel.data.rank_batches import Part, RankBatches, RankSource


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
    with pytest.raises(
        DataError,
        match=r"batches of list come in an order of their own \(a list of batches\), so 2",
    ):
        RankSource(data_source(batches, batch_size=2, seed=0, shuffle=True), 0, 2)


@given(
    num_samples=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    world_size=st.integers(1, 6),
    kind=st.sampled_from(["arrays", "a loader"]),
    undivided=st.booleans(),
)
def test_whole_batches_are_shared_out_and_none_is_counted_twice(
    num_samples: int, batch_size: int, world_size: int, kind: str, *, undivided: bool
) -> None:
    whole = source(num_samples, batch_size, kind)
    ranks: list[list[Part]] = []
    for rank in range(world_size):
        batches = RankBatches(whole, rank, world_size)
        batches.undivided(yes=undivided)
        ranks.append(list(batches.batches(0)))
    assert len({len(parts) for parts in ranks}) == 1, "a rank would wait for the others"
    if undivided:
        assert len(ranks[0]) == len(list(whole.batches(0)))
    rounds = zip(*ranks, strict=True)
    counted = [part.batch[1] for parts in rounds for part in parts if part.num_samples]
    expected = [targets for _, targets in whole.batches(0)]
    assert len(counted) == len(expected)
    assert all(map(torch.equal, counted, expected))


class Drawn(Dataset[Any]):
    """Samples of as many draws as their row, from all that a data set may draw from."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(0)
        self.made: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Rows; a number would be something that the data set keeps."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, row: int) -> Any:
        self.made.put(row)
        numbers = [random.random() + np.random.rand() + self.own.random() for _ in range(row)]
        return torch.tensor(sum(numbers) + float(torch.rand(()))), row


class Counted(Drawn):
    """Draws nothing, and goes by how many were made before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __getitem__(self, row: int) -> Any:
        self.calls += 1
        return torch.tensor(float(row * self.calls)), row


class Quiet(Drawn):
    def __getitem__(self, row: int) -> Any:
        self.made.put(row)
        return torch.tensor(float(row)), row


def mixed(samples: list[Any]) -> Any:
    """Mixes neighbours by a share that belongs to the batch."""
    inputs, rows = torch.utils.data.default_collate(samples)
    share = random.random()
    return {"x": share * inputs + (1 - share) * inputs.roll(1), "share": share, "labels": rows}


def passes(kind: type[Drawn], collate: Any, rank: int | None) -> tuple[list[Any], Drawn, Any]:
    """Two epochs of one process, or of one of three ranks; and where generators are then."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    data = kind()
    loader = DataLoader(data, 5, collate_fn=collate)
    whole = data_source(loader, batch_size=5, seed=0, shuffle=False)
    made = whole if rank is None else RankSource(whole, rank, 3)
    found = [*made.batches(0), *made.batches(1)]
    return found, data, (random.random(), np.random.rand(), torch.rand(()).item())


@pytest.mark.parametrize("collate", [None, mixed])
@pytest.mark.parametrize("kind", [Drawn, Counted, Quiet])
def test_ranks_see_what_one_process_draws(kind: type[Drawn], collate: Any) -> None:
    expected, _, after = passes(kind, collate, None)
    ranks = [passes(kind, collate, rank) for rank in range(3)]
    for at, batch in enumerate(expected):
        parts = [found[at] for found, _, _ in ranks]
        rows = [
            {"x": part.batch[0], "labels": part.batch[1]} if collate is None else part.batch
            for part in parts
            if part.num_samples
        ]
        whole = {"x": batch[0], "labels": batch[1]} if collate is None else batch
        assert torch.equal(torch.cat([row["x"] for row in rows]), whole["x"])
        assert torch.equal(torch.cat([row["labels"] for row in rows]), whole["labels"])
        assert all(row.get("share") == whole.get("share") for row in rows)
    assert all(then == after for _, _, then in ranks), "generators are where one process has them"
    if kind is Quiet and collate is None:
        counts = [data.made.qsize() for _, data, _ in ranks]
        assert max(counts) < 30, "samples that draw nothing are made by one rank"


def test_samples_that_begin_to_draw_are_noticed() -> None:
    class Late(Quiet):
        def __getitem__(self, row: int) -> Any:
            return torch.tensor(random.random() if row >= 10 else 0.0), row

    data = data_source(DataLoader(Late(), 5), batch_size=5, seed=0, shuffle=False)
    source = RankSource(data, 0, 2)
    samples = source.samples
    assert samples is not None
    late = [samples.drew_late for _ in source.batches(0)]
    assert late == [False, False, True, True, True]


@pytest.mark.parametrize("kind", [Drawn, Counted, Quiet])
def test_validation_draws_as_one_process(kind: type[Drawn]) -> None:
    found: list[Any] = []
    for rank in (None, 0, 1, 2):
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        data = data_source(DataLoader(kind(), 4), batch_size=4, seed=0, shuffle=False)
        made = data if rank is None else RankBatches(data, rank, 3)
        batches = [*made.batches(0), *made.batches(0)]
        found.append((batches, random.random()))
    (expected, after), *ranks = found
    rounds = zip(*(parts for parts, _ in ranks), strict=True)
    counted = [part.batch[0] for parts in rounds for part in parts if part.num_samples]
    assert all(map(torch.equal, counted, [inputs for inputs, _ in expected]))
    assert len(counted) == len(expected)
    if kind is Drawn:
        assert all(then == after for _, then in ranks)


def test_workers_of_ranks_draw_apart() -> None:
    """Seeded by their number alone, and with a copy each of what the data set holds."""
    rows = [rank_rows(rank, "fork") for rank in (0, 1)]
    drawn = torch.cat(rows).flatten().tolist()
    assert len(set(drawn)) == len(drawn)
    assert torch.equal(rank_rows(1, "spawn"), rows[1])


class OfWorkers(Dataset[Any]):
    def __init__(self) -> None:
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, row: int) -> Any:
        numbers = [random.random(), np.random.rand(), float(torch.rand(())), self.own.random()]
        return torch.tensor(numbers, dtype=torch.float64), row


def seeded(worker: int) -> None:
    random.seed(worker)
    np.random.seed(100 + worker)
    torch.manual_seed(200 + worker)


def rank_rows(rank: int, context: str) -> torch.Tensor:
    loader = DataLoader(
        OfWorkers(), 4, num_workers=1, worker_init_fn=seeded, multiprocessing_context=context
    )
    source = RankSource(data_source(loader, batch_size=4, seed=0, shuffle=False), rank, 2)
    return torch.cat([part.batch[0] for part in source.batches(0)])


def test_batch_norm_gets_two_rows_or_none() -> None:
    made = source(6, 3, "arrays")
    ranks = [list(RankSource(made, rank, 2, fewest=2).batches(0)) for rank in (0, 1)]
    assert [[part.num_samples for part in parts] for parts in ranks] == [[3, 3], [0, 0]]
    assert all(len(part.batch[1]) == 2 for part in ranks[1])
    (note,) = filter(None, RankSource(made, 0, 2, fewest=2).notes())
    assert note.startswith("batches of 3 are computed by 1 of 2 ranks (batch norm needs two")
    assert not any(RankSource(made, 0, 2).notes())
