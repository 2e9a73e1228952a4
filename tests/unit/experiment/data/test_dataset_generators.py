"""Generators that samples draw from: found wherever a data set reaches them, kept and moved on."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from workbench.experiment.data.data import data_source
from workbench.experiment.data.dataset_generators import (
    Generators,
    drawn_by,
    found_in,
    held_by,
    kept_by,
    move_apart,
    read,
    write,
)

IN_A_MODULE = np.random.default_rng(7)
HELD = np.random.default_rng(5)


class Crop:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def __call__(self, x: Any) -> Any:
        return x + self.rng.random() + helper()


def helper() -> float:
    return float(IN_A_MODULE.random())


class Data(Dataset[Any]):
    def __init__(self) -> None:
        self.transforms = [Crop(), torch.nn.Identity()]
        self.old, self.pythons = np.random.RandomState(2), random.Random(3)
        self.torchs = torch.Generator().manual_seed(4)
        self.large = torch.zeros(1000, 1000)
        self.globals = [random.random, np.random.rand, torch.default_generator]

    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: int) -> Any:
        return self.transforms[0](torch.zeros(())), row


def test_all_that_a_data_set_reaches_are_found() -> None:
    data = Data()
    crop: Any = data.transforms[0]
    found = found_in(data)
    expected = [crop.rng, IN_A_MODULE, data.old, data.pythons, data.torchs]
    assert {id(one) for one in found} == {id(one) for one in expected}
    source = data_source(DataLoader(data, 2), batch_size=2, seed=0, shuffle=False)
    assert len(drawn_by(source)) == len(expected) == len(held_by(source).generators)
    assert held_by(None).read() == ([], None)


def draw(one: Any) -> float:
    if isinstance(one, torch.Generator):
        return float(torch.rand((), generator=one))
    return float(one.random() if hasattr(one, "random") else one.random_sample())


KINDS = [
    lambda: np.random.default_rng(0),
    lambda: np.random.Generator(np.random.MT19937(0)),
    lambda: np.random.RandomState(0),
    lambda: random.Random(0),
    lambda: torch.Generator().manual_seed(0),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_gone_back_to_and_ranks_go_apart(kind: Any) -> None:
    one = kind()
    (state,) = read([one])
    first = draw(one)
    write([one], [state])
    assert draw(one) == first
    others = [kind() for _ in range(3)]
    for rank, other in enumerate(others, 1):
        move_apart([other], rank)
    again = kind()
    move_apart([again], 1)
    drawn = [draw(other) for other in others]
    assert len({first, *drawn}) == 4
    assert draw(again) == drawn[0], "by what it was and the rank alone"


def test_one_that_is_made_for_a_first_sample_is_found_then() -> None:
    data = Data()
    generators = Generators(lambda: found_in(data))
    assert not generators.refresh()
    data.late = np.random.default_rng(0)  # type: ignore[attr-defined]
    assert generators.refresh()
    assert not generators.refresh()


@pytest.mark.parametrize(
    "drawing", [random.random, np.random.rand, lambda: torch.rand(()), HELD.random]
)
def test_a_draw_is_seen_and_undone(drawing: Any) -> None:
    generators = Generators(lambda: [HELD])
    mark, state = generators.mark(), generators.state()
    assert generators.mark() == mark
    first = float(drawing())
    assert generators.mark() != mark
    generators.go_to(state)
    assert generators.mark() == mark
    assert float(drawing()) == first


def test_a_mark_is_the_same_while_nothing_draws() -> None:
    """Torch's pickle of a generator's state would tell where in memory that is."""
    generators = Generators(lambda: [torch.Generator().manual_seed(1), np.random.default_rng(1)])
    mark = generators.mark()
    kept: list[Any] = []
    for _ in range(50):
        kept.append(generators.state())  # takes the place where the last state was
        assert generators.mark() == mark


class Counting(Data):
    """It counts its samples, and makes a generator for the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __getitem__(self, row: int) -> Any:
        if self.calls == 0:
            self.late = np.random.default_rng(0)
        self.calls += 1
        return super().__getitem__(row)


def test_what_a_data_set_keeps_goes_apart_from_a_generator_that_is_made_late() -> None:
    there, here = Counting(), Counting()
    source, other = (
        data_source(DataLoader(data, 2), batch_size=2, seed=0, shuffle=False)
        for data in (there, here)
    )
    generators = Generators(lambda: drawn_by(source), kept_by(source))
    state, at_home = generators.state(), held_by(other)
    there[0]
    assert generators.refresh()
    changed = generators.held.read()
    at_home.write(pickle.loads(pickle.dumps(changed)))
    assert here.calls == 1
    assert here.late.random() == there.late.random(), "goes on where the other one was"
    generators.go_to(state)
    assert there.calls == 0
    assert not hasattr(there, "late"), "the first sample makes it anew"
    assert generators.changed() == []
