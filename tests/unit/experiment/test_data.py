"""What may be trained on, and how it is batched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
)

from workbench.experiment.data import (
    ArraySource,
    DataError,
    ForeignSource,
    LoaderSource,
    data_source,
    split,
    to_device,
)

OPTIONS: dict[str, Any] = {"batch_size": 4, "seed": 3, "shuffle": True}


def pair(n: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(n * 2.0).reshape(n, 2), torch.arange(n)


def test_arrays_of_numpy_take_torchs_types() -> None:
    images, labels = np.random.rand(10, 3), np.arange(10, dtype=np.int32)
    source = data_source((images, labels), **OPTIONS)
    assert isinstance(source, ArraySource)
    x, y = next(source.batches(0))
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert (source.num_samples, source.steps_per_epoch, source.batch_size) == (10, 3, 4)


@pytest.mark.parametrize("size", [1, 4, 600])
def test_arrays_go_on_from_any_batch_as_a_loader_does(size: int) -> None:
    settings: dict[str, Any] = {"batch_size": size, "seed": 3, "shuffle": True}
    arrays = data_source(pair(2_500), **settings)
    loader = data_source(TensorDataset(*pair(2_500)), **settings)
    whole = [y.tolist() for _, y in loader.batches(1)]
    assert len(whole) == arrays.steps_per_epoch
    for start in (0, 1, 2, len(whole) - 1, len(whole)):
        assert [y.tolist() for _, y in arrays.batches(1, start)] == whole[start:]


def test_labels_may_be_a_list() -> None:
    source = data_source((np.zeros((3, 2)), [0, 1, 2]), batch_size=4, seed=0, shuffle=False)
    assert next(source.batches(0))[1].tolist() == [0, 1, 2]


def test_a_plain_loader_keeps_everything_but_its_sampler() -> None:
    def collate(rows: list[Any]) -> Any:
        return torch.stack([x for x, _ in rows]) * 100, torch.stack([y for _, y in rows])

    loader = DataLoader(
        TensorDataset(*pair()), 3, shuffle=True, drop_last=True, collate_fn=collate, timeout=0
    )
    source = data_source(loader, **OPTIONS)
    assert isinstance(source, LoaderSource)
    assert (source.batch_size, source.steps_per_epoch, source.note) == (3, 3, "")
    assert all(len(x) == 3 and float(x.max()) >= 100 for x, _ in source.batches(0))


def test_a_sequential_loader_stays_in_order() -> None:
    source = data_source(DataLoader(TensorDataset(*pair()), 4), **OPTIONS)
    assert torch.cat([y for _, y in source.batches(5)]).tolist() == list(range(10))


def test_another_sampler_is_used_as_it_is_and_said_so() -> None:
    sampler = WeightedRandomSampler([1.0] * 10, 20)
    source = data_source(DataLoader(TensorDataset(*pair()), 4, sampler=sampler), **OPTIONS)
    assert isinstance(source, ForeignSource)
    assert source.note == (
        "order of samples is the loader's own (WeightedRandomSampler): a resume cannot repeat it"
    )
    assert source.steps_per_epoch == 5
    assert sum(len(y) for _, y in source.batches(0, start=2)) == 12


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(*pair(), strict=True))


def test_a_stream_has_no_known_length() -> None:
    source = data_source(Stream(), **OPTIONS)
    assert source.steps_per_epoch == 0
    assert [len(y) for _, y in source.batches(0)] == [4, 4, 2]


def test_a_list_of_batches_is_a_loader_too() -> None:
    source = data_source([pair(4), pair(2)], **OPTIONS)
    assert [len(y) for _, y in source.batches(0)] == [4, 2]
    assert source.steps_per_epoch == 2


@pytest.mark.parametrize(
    "sample",
    [
        lambda i: (torch.full((3,), float(i)), i % 2),
        lambda i: (torch.full((3,), float(i)), torch.tensor(i % 2)),
        lambda i: (torch.full((3,), float(i)), torch.tensor([0.0, 1.0])),
        lambda i: {"a": torch.full((3,), float(i)), "b": torch.ones(2), "labels": i % 2},
    ],
)
def test_a_list_of_samples_is_a_dataset(sample: Callable[[int], Any]) -> None:
    source = data_source([sample(i) for i in range(10)], **OPTIONS)
    assert (source.num_samples, source.steps_per_epoch) == (10, 3)
    assert [len(split(batch)[1]) for batch in source.batches(0)] == [4, 4, 2]


def test_a_list_of_mappings_may_be_one_of_batches() -> None:
    batches = [{"a": torch.ones(4, 3), "labels": torch.zeros(4)} for _ in range(2)]
    assert data_source(batches, **OPTIONS).steps_per_epoch == 2


class Mappings(Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": torch.full((2,), float(index)), "labels": index}


def test_mapping_batches_are_split_at_their_labels() -> None:
    source = data_source(Mappings(), batch_size=5, seed=0, shuffle=False)
    inputs, targets = split(next(source.batches(0)))
    assert list(inputs) == ["pixel_values"]
    assert targets.tolist() == [0, 1, 2, 3, 4]
    moved = to_device(inputs, torch.device("cpu"))
    assert moved["pixel_values"] is inputs["pixel_values"], "a tensor in place was copied"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (TensorDataset(torch.zeros(0, 2)), "empty TensorDataset"),
        (DataLoader(TensorDataset(torch.zeros(3, 2)), 4, drop_last=True), "less than one batch"),
        ((np.array(["a", "b"]), np.array([0, 1])), r"train\[0\] cannot become a tensor"),
        ((torch.tensor(1.0), torch.tensor(1)), "is a single number"),
        ({"x": 1}, "train is a dict; valid: a Dataset"),
        (iter([1, 2]), "valid: a Dataset"),
    ],
)
def test_unusable_data_is_refused(data: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        data_source(data, **OPTIONS)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((1, 2, 3), "a batch is a tuple of 3; valid: a pair"),
        (torch.zeros(3), "a batch is a Tensor; valid"),
        ({"x": 1, "y": 2}, "a mapping with keys x, y; it needs a key 'labels'"),
    ],
)
def test_unusable_batches_are_refused(batch: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        split(batch)


def test_a_tuple_that_is_no_pair_of_arrays_is_refused() -> None:
    x, y = torch.randn(8, 2), torch.zeros(8, dtype=torch.long)
    for wrong in ((x, y, y), (nn.Linear(2, 2), x), (x,)):
        with pytest.raises(DataError, match=r"train is a tuple of \d .*a pair of arrays"):
            data_source(wrong, batch_size=4, seed=0, shuffle=False)
