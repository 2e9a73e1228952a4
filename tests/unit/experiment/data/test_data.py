"""What may be trained on, and how it is batched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from tests.unit.experiment.plain_loop import (
    CLASSES,
    FEATURES,
    assert_equal,
    data,
    evaluated,
    plain_loop,
    seeded,
)
from workbench.experiment import Experiment
from workbench.experiment.data.cursor import Cursor
from workbench.experiment.data.data import (
    ArraySource,
    DataError,
    ForeignSource,
    LoaderSource,
    batch_size_of,
    data_source,
    split,
    to_device,
)
from workbench.experiment.runtime.step_boundary import between_steps

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
    assert source.note == ("order of samples is the loader's own (WeightedRandomSampler)")
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


# -- who shuffles by set_epoch ----------------------------------------------------------------


def orders(source: Any, epochs: int = 3) -> list[list[int]]:
    """The labels of every epoch, as a run sees them."""
    found: list[list[int]] = []
    cursor = Cursor(source, torch.device("cpu"))
    for _ in range(epochs):
        seen: list[int] = []
        while (batch := cursor.take()) is not None:
            seen += batch[1].tolist()
            cursor.done()
        found.append(seen)
        cursor.next_epoch()
    return found


def passes(loader: Any, tell: Any, epochs: int = 3) -> list[list[int]]:
    """The same as torch's documentation has it: ``set_epoch``, then a pass."""
    found: list[list[int]] = []
    for epoch in range(epochs):
        tell.set_epoch(epoch)
        found.append([int(label) for _, y in loader for label in y])
    return found


class ByEpoch:
    """Shuffles by the epoch that is set; a sampler of samples or, in lists, of batches."""

    def __init__(self, count: int, size: int = 0) -> None:
        self.count, self.size, self.epoch, self.epochs = count, size, 0, list[int]()

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.epochs.append(epoch)

    def __len__(self) -> int:
        return -(-self.count // self.size) if self.size else self.count

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(self.count, generator=generator)
        yield from (
            order.tolist() if not self.size else [p.tolist() for p in order.split(self.size)]
        )


def of_distributed_sampler() -> tuple[Any, Any]:
    dataset = TensorDataset(*pair(12))
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=True, seed=3)
    return DataLoader(dataset, 4, sampler=sampler), sampler


def of_sampler() -> tuple[Any, Any]:
    sampler = ByEpoch(12)
    return DataLoader(TensorDataset(*pair(12)), 4, sampler=sampler), sampler  # type: ignore[arg-type]


def of_batch_sampler() -> tuple[Any, Any]:
    sampler = ByEpoch(12, size=4)
    return DataLoader(TensorDataset(*pair(12)), batch_sampler=sampler), sampler  # type: ignore[arg-type]


def of_sampler_in_a_batch_sampler() -> tuple[Any, Any]:
    sampler = ByEpoch(12)
    batches = BatchSampler(sampler, 4, drop_last=False)  # type: ignore[arg-type]
    return DataLoader(TensorDataset(*pair(12)), batch_sampler=batches), sampler


class StreamByEpoch(IterableDataset[Any]):
    def __init__(self) -> None:
        self.sampler = ByEpoch(12)
        self.set_epoch = self.sampler.set_epoch

    def __iter__(self) -> Iterator[Any]:
        x, y = pair(12)
        return ((x[row], y[row]) for row in self.sampler)


def of_stream() -> tuple[Any, Any]:
    stream = StreamByEpoch()
    return DataLoader(stream, 4), stream


class Loader:
    """An iterable of batches with a set_epoch of its own, as those of accelerate have."""

    def __init__(self) -> None:
        self.loader, sampler = of_sampler()
        self.set_epoch = sampler.set_epoch

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


def of_loader() -> tuple[Any, Any]:
    loader = Loader()
    return loader, loader


@pytest.mark.parametrize(
    "made",
    [
        of_distributed_sampler,
        of_sampler,
        of_batch_sampler,
        of_sampler_in_a_batch_sampler,
        of_stream,
        of_loader,
    ],
)
def test_what_shuffles_by_the_epoch_is_given_it(made: Callable[[], tuple[Any, Any]]) -> None:
    expected = passes(*made())
    found = orders(data_source(made()[0], **OPTIONS))
    assert found == expected
    assert found[0] != found[1] != found[2]
    assert sorted(found[0]) == list(range(12))


class Curriculum(Dataset[Any]):
    """A map-style dataset whose samples depend on the epoch."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.full((2,), float(index)), index + 100 * self.epoch


@pytest.mark.parametrize(
    ("order", "loaded"), [("workbench", False), ("workbench", True), ("loader", True)]
)
def test_a_dataset_is_given_the_epoch_in_either_order(order: Any, loaded: bool) -> None:
    dataset = Curriculum()
    given = DataLoader(dataset, 4) if loaded else dataset
    found = orders(data_source(given, batch_size=4, seed=0, shuffle=False, order=order))
    assert found == [[index + 100 * epoch for index in range(12)] for epoch in range(3)]


def test_the_next_samples_are_looked_at_as_their_epoch_has_them() -> None:
    source = data_source(Curriculum(), batch_size=4, seed=0, shuffle=False)
    assert source.first(2, 4, 3)[1].tolist() == [204, 205, 206]


def test_a_run_that_continues_in_the_middle_of_an_epoch_sets_no_other_epoch(tmp_path: Path) -> None:
    sampler = ByEpoch(12)
    seen: list[int] = []
    model = nn.Linear(2, 12)
    model.register_forward_pre_hook(lambda module, inputs: seen.extend(inputs[0][:, 0].tolist()))
    loader = DataLoader(TensorDataset(*pair(12)), 4, sampler=sampler)  # type: ignore[arg-type]
    exp = Experiment(model, loader, runs=tmp_path, device="cpu")
    for steps in (2, 2, 5):
        exp.run(steps=steps, wait=True)
    exp.close()
    expected = [label for epoch in passes(*of_sampler()) for label in epoch]
    assert [int(value) // 2 for value in seen] == expected
    assert sorted(set(sampler.epochs)) == [0, 1, 2]


# -- the loader's own order -------------------------------------------------------------------


class Dropping(nn.Module):
    """Draws from the generator from which a loader draws its order."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(x))


class Noisy(Dataset[Any]):
    """Augments by torch's global generator, as torchvision does."""

    def __init__(self) -> None:
        self.x, self.y = data(50)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index] + 0.1 * torch.randn(FEATURES), self.y[index]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffled": lambda: DataLoader(TensorDataset(*data(50)), 16, shuffle=True),
    "generator": lambda: DataLoader(
        TensorDataset(*data(50)), 16, shuffle=True, generator=torch.Generator().manual_seed(7)
    ),
    "sampler's generator": lambda: DataLoader(
        TensorDataset(*data(50)),
        16,
        sampler=RandomSampler(range(50), generator=torch.Generator().manual_seed(7)),
    ),
    "drop_last": lambda: DataLoader(TensorDataset(*data(50)), 16, shuffle=True, drop_last=True),
    "augmented": lambda: DataLoader(Noisy(), 16, shuffle=True),
    "in order": lambda: DataLoader(Noisy(), 16),
}


def by_hand(kind: str, epochs: int, *, val: bool) -> tuple[nn.Module, list[float], list[float]]:
    model, found = seeded(Dropping), list[float]()
    val_loader = DataLoader(TensorDataset(*data(32, seed=2)), 16)

    def validate() -> None:
        found.append(evaluated(model, val_loader)[0])

    after = {"after_epoch": validate} if val else {}
    losses = plain_loop(model, LOADERS[kind](), sgd(model), epochs=epochs, seed=5, **after)
    return model, losses, found


@pytest.mark.parametrize("steps", [(), (2, 5, 1), (4, 4)])
@pytest.mark.parametrize("val", [False, True])
@pytest.mark.parametrize("kind", LOADERS)
def test_the_loaders_own_order_is_a_plain_loops(
    tmp_path: Path, kind: str, val: bool, steps: tuple[int, ...]
) -> None:
    """After ``torch.manual_seed(seed)``, with dropout and a loader for validation, which draw too.

    Runs end in the middle of an epoch and at its end; cells in between draw what they like.
    """
    expected, right, val_losses = by_hand(kind, 3, val=val)
    model = seeded(Dropping)
    val_loader = DataLoader(TensorDataset(*data(32, seed=2)), 16) if val else None
    exp = Experiment(
        model, LOADERS[kind](), val_loader, optimizer=sgd(model), order="loader", seed=5,
        runs=tmp_path, device="cpu",
    )  # fmt: skip
    for count in steps:
        exp.run(steps=count, wait=True)
        torch.rand(3)
    while exp._training.cursor.epoch < 3:  # an epoch that was begun counts as one
        exp.run(epochs=1, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == right
    assert_equal(model, expected)
    if val:
        found = exp.scalars.since("val/loss", 0)[1].tolist()
        assert found == pytest.approx(val_losses, rel=1e-6)


def test_inspecting_the_step_after_a_run_leaves_the_loaders_order_as_it_is(tmp_path: Path) -> None:
    """The batch that is fetched for it is the next run's first one, and its draws are with it."""
    from workbench.memory import MemoryProbe

    for ends in (8, 6):  # at the end of an epoch, and in the middle of one
        expected = seeded(Dropping)
        right = plain_loop(expected, LOADERS["shuffled"](), sgd(expected), epochs=3, seed=5)
        model = seeded(Dropping)
        exp = Experiment(
            model, LOADERS["shuffled"](), optimizer=sgd(model), order="loader", seed=5,
            runs=tmp_path, device="cpu",
        )  # fmt: skip
        if ends == 8:
            exp.run(epochs=2, wait=True)
        else:
            exp.run(steps=6, wait=True)
        exp.capture(MemoryProbe()).wait()
        exp.run(steps=12 - ends, wait=True)
        exp.close()
        assert exp.scalars.since("train/loss", 0)[1].tolist() == right
        assert_equal(model, expected)


@pytest.mark.parametrize("before", [0, 2, 4, 6])
def test_inspecting_the_next_batch_leaves_the_loaders_order_as_it_is(
    tmp_path: Path, before: int
) -> None:
    """As a prediction of memory has it: before the first step, and between two runs."""
    expected = seeded(Dropping)
    right = plain_loop(expected, LOADERS["shuffled"](), sgd(expected), epochs=2, seed=5)
    model = seeded(Dropping)
    exp = Experiment(
        model, LOADERS["shuffled"](), optimizer=sgd(model), order="loader", seed=5,
        runs=tmp_path, device="cpu",
    )  # fmt: skip
    if before:
        exp.run(steps=before, wait=True)
    cells = torch.manual_seed(11).get_state()
    between_steps(exp, lambda step: step.batch)
    assert torch.equal(torch.get_rng_state(), cells), "what a cell draws next was changed"
    torch.rand(3)
    exp.run(steps=8 - before, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == right
    assert_equal(model, expected)


def test_inspecting_the_end_of_an_epoch_leaves_it_too(tmp_path: Path) -> None:
    """After steps that end with an epoch, of which nobody knows yet that it is over."""
    from workbench.memory import MemoryProbe

    expected = seeded(Dropping)
    right = plain_loop(expected, LOADERS["shuffled"](), sgd(expected), epochs=2, seed=5)
    model = seeded(Dropping)
    exp = Experiment(
        model, LOADERS["shuffled"](), optimizer=sgd(model), order="loader", seed=5,
        runs=tmp_path, device="cpu",
    )  # fmt: skip
    exp.run(steps=4, wait=True)
    exp.capture(MemoryProbe()).wait()
    exp.run(steps=4, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == right
    assert_equal(model, expected)


@pytest.mark.parametrize("kind", ["generator", "sampler's generator"])
def test_under_the_default_order_a_loaders_generator_is_said_to_be_unused(kind: str) -> None:
    source = data_source(LOADERS[kind](), **OPTIONS)
    assert source.note == (
        "train is shuffled with seed 3, so that a run can be resumed at any step, and not with the "
        "loader's generator: order='loader' keeps the loader's own order"
    )
    assert source.repeats


def test_a_generator_that_shuffles_nothing_needs_no_word() -> None:
    generator = torch.Generator().manual_seed(7)
    loader = DataLoader(TensorDataset(*pair()), 4, generator=generator)
    assert data_source(loader, **OPTIONS).note == ""
    assert data_source(DataLoader(TensorDataset(*pair()), 4, shuffle=True), **OPTIONS).note == ""


@pytest.mark.parametrize(
    ("given", "name"),
    [(pair(), "tuple"), (TensorDataset(*pair()), "TensorDataset"), ([pair(4)], "list")],
)
def test_the_loaders_order_needs_a_loader(given: Any, name: str) -> None:
    words = f"order='loader' keeps the order of a DataLoader, and train is a {name}"
    with pytest.raises(DataError, match=words):
        data_source(given, order="loader", **OPTIONS)
    val = data_source(given, order="loader", what="val", **OPTIONS)
    assert sum(len(y) for _, y in val.batches(0)) in (4, 10)


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(DataError, match="order is 'mine'; valid: 'workbench', 'loader'"):
        data_source(pair(), order="mine", **OPTIONS)  # type: ignore[arg-type]


def test_a_loader_without_batching_is_named_by_its_sampler() -> None:
    batches = [pair(4), pair(2)]
    loader = DataLoader(batches, batch_size=None, sampler=SequentialSampler(batches))  # type: ignore[arg-type]
    source = data_source(loader, **OPTIONS)
    assert [len(y) for _, y in source.batches(0)] == [4, 2]
    assert "NoneType" not in source.note


# -- streams with a length that is wrong ------------------------------------------------------


class Wrong(IterableDataset[Any]):
    """Says another length than it has."""

    def __init__(self, says: int, has: int) -> None:
        self.says, self.has = says, has

    def __len__(self) -> int:
        return self.says

    def __iter__(self) -> Iterator[Any]:
        x, y = data(self.has)
        return iter(zip(x, y, strict=True))


@pytest.mark.filterwarnings("ignore:Length of IterableDataset")
@pytest.mark.parametrize("says", [10, 40, 100])
@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("steps", [(), (2, 1)])
def test_an_epoch_of_a_stream_ends_where_the_stream_ends(
    tmp_path: Path, says: int, loaded: bool, steps: tuple[int, ...]
) -> None:
    """All samples are seen once an epoch, whatever length it declares."""
    expected, model = seeded(Dropping), seeded(Dropping)
    right = plain_loop(expected, DataLoader(Wrong(says, 40), 16), sgd(expected), epochs=3)
    stream = Wrong(says, 40)
    exp = Experiment(
        model, DataLoader(stream, 16) if loaded else stream, optimizer=sgd(model), batch_size=16,
        runs=tmp_path, device="cpu",
    )  # fmt: skip
    for count in steps:
        exp.run(steps=count, wait=True)
    while exp._training.cursor.epoch < 3:
        exp.run(epochs=1, wait=True)
    assert (exp.step_count, exp.steps_per_epoch) == (9, 3)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == right
    assert_equal(model, expected)


# -- one input that looks like several --------------------------------------------------------


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.GRU(4, 8), nn.Linear(8, 2)

    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        return self.head(self.body(sequences)[1][-1])


def sequences() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    rows = [(torch.randn(3 + at % 5, 4, generator=generator), at % 2) for at in range(32)]

    def collate(samples: list[Any]) -> Any:
        packed = pack_sequence([x for x, _ in samples], enforce_sorted=False)
        return packed, torch.tensor([y for _, y in samples])

    return DataLoader(rows, 8, collate_fn=collate)  # type: ignore[arg-type]


class Inputs(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class TwoSides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, sides: Inputs) -> torch.Tensor:
        return self.head(sides.left - sides.right)


def two_sides() -> DataLoader[Any]:
    (left, y), (right, _) = data(32), data(32, seed=2)
    rows = [(Inputs(*sides), label) for *sides, label in zip(left, right, y, strict=True)]
    return DataLoader(rows, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "kind", "loader"),
    [(Sequences, PackedSequence, sequences), (TwoSides, Inputs, two_sides)],
)
def test_a_named_tuple_is_one_input(
    tmp_path: Path, made: Callable[[], nn.Module], kind: type, loader: Callable[[], Any]
) -> None:
    """The model is called with it, as in a plain loop; it keeps its type where it is moved."""
    expected, model = seeded(made), seeded(made)
    right = plain_loop(expected, loader(), sgd(expected), epochs=2)
    exp = Experiment(model, loader(), loader(), optimizer=sgd(model), runs=tmp_path, device="cpu")
    exp.run(epochs=2, wait=True)
    exp.close()
    assert exp.scalars.since("train/loss", 0)[1].tolist() == right
    assert_equal(model, expected)
    inputs, labels = split(next(iter(loader())))
    moved = to_device(inputs, torch.device("cpu"))
    assert type(moved) is kind
    assert batch_size_of(moved, labels) == 8


def test_a_batch_that_is_a_named_tuple_is_a_pair() -> None:
    class Batch(NamedTuple):
        x: torch.Tensor
        y: torch.Tensor

    x, y = pair(4)
    assert split(Batch(x, y)) == (x, y)


@pytest.mark.parametrize("shape", [(8,), (1, 5), (1, 6, 6)])
@pytest.mark.parametrize("batch_size", [4, None])
def test_a_list_of_what_may_be_samples_or_batches_is_refused(
    shape: tuple[int, ...], batch_size: int | None
) -> None:
    """An autoencoder's samples, or several labels: one step of each would be none of a batch."""
    pairs = [(torch.randn(shape), torch.randn(shape)) for _ in range(8)]
    with pytest.raises(DataError, match=r"may be samples or batches of [18]: give DataLoader"):
        data_source(pairs, batch_size=4, seed=0, shuffle=True)
    loader = DataLoader(pairs, batch_size=batch_size)
    source = data_source(loader, batch_size=4, seed=0, shuffle=True)
    first, _ = next(iter(source.batches(0)))
    assert first.shape == (shape if batch_size is None else (batch_size, *shape))


def rows(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape)


@pytest.mark.parametrize(
    ("inputs", "targets", "samples"),
    [
        (rows(8, 3), rows(8), 8),
        ({"ids": rows(8, 5), "mask": rows(8, 5)}, rows(8), 8),
        (rows(20, 8, 3), rows(8), 8),  # sequence first
        (rows(8, 20, 3), rows(8 * 20), 8),  # tokens, flattened
        (rows(8, 20, 3), (rows(24), rows(8)), 8),  # CTC: concatenated, and their lengths
        (rows(8, 20, 3), [rows(24), rows(8)], 8),
        (rows(8, 3), [rows(5), *[rows(1)] * 7], 8),  # labels of each sample by itself
        (rows(8, 3), [rows(8), rows(8)], 8),  # several tasks
        ([rows(8, 3), rows(8, 2)], [rows(24), rows(8)], 8),
        ([rows(3, 9, 9), rows(3, 7, 7)], [{"boxes": rows(5, 4)}, {"boxes": rows(1, 4)}], 2),
        (pack_sequence([rows(5, 3), rows(4, 3)]), rows(2), 2),
        ("a graph", rows(8), 8),
        ("a graph", [rows(5), rows(1)], 2),
        ("a graph", "labels", -1),
    ],
)
def test_the_samples_of_a_batch(inputs: Any, targets: Any, samples: int) -> None:
    assert batch_size_of(inputs, targets) == samples
