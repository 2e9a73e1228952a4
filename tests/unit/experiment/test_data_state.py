"""What a data set keeps from sample to sample: seen, put back, and given to a copy of it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from workbench.experiment.data_state import MOST_ELEMENTS, DataState, data_state_of


class Harder:
    """A transform that counts."""

    def __init__(self) -> None:
        self.level = 0.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.level += 0.5
        return x * self.level


class Data(Dataset[Any]):
    def __init__(self) -> None:
        self.rows = torch.randn(5000, 4)
        self.names = [f"row {at}" for at in range(100)]
        self.transforms = [Harder(), torch.nn.Identity()]
        self.calls, self.cache = 0, {}
        self.counts, self.seen = np.zeros(3), torch.zeros(3)
        self.order: list[Any] = []
        self.file: Any = None

    def __len__(self) -> int:
        return 100

    def __getitem__(self, row: int) -> Any:
        return self.transforms[0](self.rows[row]), row


def calls(data: Any) -> None:
    data.calls += 1


def caches(data: Any) -> None:
    data.cache[3] = torch.ones(2)


def transforms(data: Any) -> None:
    data[0]


def array(data: Any) -> None:
    data.counts[1] += 1


def tensor(data: Any) -> None:
    data.seen[1] += 1


def appends(data: Any) -> None:
    data.order.append((1, "a"))


def makes(data: Any) -> None:
    data.made = {"a": 1}


def takes_away(data: Any) -> None:
    del data.calls


CHANGES: list[Callable[[Any], None]] = [
    calls, caches, transforms, array, tensor, appends, makes, takes_away,
]  # fmt: skip


def plain(data: Any) -> str:
    """All of it, to be compared."""
    kept = {name: value for name, value in vars(data).items() if name != "rows"}
    kept["transforms"] = [vars(one) for one in data.transforms[:1]]
    return repr(sorted(kept.items()))


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_undone_and_given_to_a_copy(change: Callable[[Any], None]) -> None:
    data: Any = Data()
    there = copy.deepcopy(data)
    before, kept = plain(data), DataState(data)
    mark, state = kept.mark(), kept.get_state()
    change(data)
    after = plain(data)
    assert after != before
    assert kept.mark() != mark
    assert kept.changed()
    changed = pickle.loads(pickle.dumps(kept.get_state()))
    kept.set_state(state)
    assert plain(data) == before
    assert kept.mark() == mark
    kept.set_state(changed)
    assert plain(data) == after
    at_home = DataState(there)
    containers = there.cache, there.order
    at_home.set_state(changed)
    assert plain(there) == after
    assert at_home.mark() != mark
    assert (there.cache, there.order) == containers
    assert there.cache is containers[0]


def test_what_is_opened_is_no_state() -> None:
    data: Any = Data()
    kept = DataState(data)
    data.file = object()
    assert not kept.changed()


def test_data_sets_of_others_are_looked_through() -> None:
    inner = Data()
    data = ConcatDataset([Subset(inner, [0, 1]), Data()])
    kept = data_state_of(DataLoader(data))
    assert kept is not None
    inner.calls += 1
    assert [name.rpartition(".")[2] for name in kept.changed()] == ["calls"]


def test_data_sets_without_an_object_of_a_persons_keep_nothing() -> None:
    tensors = torch.utils.data.TensorDataset(torch.zeros(3))
    assert data_state_of(DataLoader(tensors)) is None


def test_of_a_large_container_the_length_is_known() -> None:
    data: Any = Data()
    data.cache = dict.fromkeys(range(MOST_ELEMENTS), 0)
    kept = DataState(data)
    mark = kept.mark()
    data.cache[-1] = 0
    assert kept.mark() != mark
    kept.set_state(kept.get_state())
    assert len(data.cache) == MOST_ELEMENTS + 1
