"""An inspection before the first step: the run is the same as without it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from tests.unit.experiment.plain_loop import BATCH, NUM_SAMPLES, data, linear, plain_loop, seeded
from workbench.experiment import Experiment
from workbench.experiment.runtime.step_boundary import between_steps


class Noisy(Dataset[Any]):
    """Augments with numbers of a generator that is not torch's."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.pair, self.draw = data(), draw

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        return self.pair[0][index] * self.draw(), self.pair[1][index]


class OwnOrder(Sampler[int]):
    """Gives an order once: the next one is another."""

    def __init__(self) -> None:
        self.generator_of_its_own = np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        return iter(self.generator_of_its_own.permutation(NUM_SAMPLES).tolist())

    def __len__(self) -> int:
        return NUM_SAMPLES


DRAWS: dict[str, Callable[[], float]] = {
    "numpy": lambda: float(np.random.rand()),
    "python": random.random,
    "torch": lambda: float(torch.rand(())),
    "nothing": lambda: 1.0,
}


def look(exp: Experiment) -> None:
    between_steps(exp, lambda step: step.batch)


def seed(exp: Experiment) -> None:
    del exp
    np.random.seed(0)
    random.seed(0)


def draw(exp: Experiment) -> None:
    del exp
    np.random.rand(3)
    random.random()


WAYS = [(seed,), (look, seed), (seed, look), (look, look, seed, look), (seed, look, draw)]


@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: "-".join(way.__name__ for way in ways))
@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("own_generator", [False, True])
def test_a_run_is_the_one_that_was_not_inspected(
    tmp_path: Path, ways: tuple[Any, ...], kind: str, own_generator: bool
) -> None:
    def loader() -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(7) if own_generator else None
        return DataLoader(Noisy(DRAWS[kind]), BATCH, shuffle=True, generator=generator)

    model = seeded(linear)
    exp = Experiment(
        model,
        loader(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        order="loader",
        runs=tmp_path,
        device="cpu",
    )
    by_hand = seeded(linear)
    for way in ways:
        if way is not look:
            way(exp)
    expected = plain_loop(
        by_hand, loader(), torch.optim.SGD(by_hand.parameters(), lr=0.1), epochs=2
    )
    for way in ways:
        way(exp)
    run = exp.run(epochs=2, wait=True)
    assert run.metrics["train/loss"]["value"].tolist() == expected


@pytest.mark.parametrize("ways", [(look,), (look, seed)])
def test_an_order_that_is_given_once_stays(tmp_path: Path, ways: tuple[Any, ...]) -> None:
    model = seeded(linear)
    exp = Experiment(
        model,
        DataLoader(Noisy(DRAWS["numpy"]), BATCH, sampler=OwnOrder()),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        runs=tmp_path,
        device="cpu",
    )
    for way in ways:
        way(exp)
    exp.run(epochs=1, wait=True)
    assert exp.step_count == NUM_SAMPLES // BATCH
    notes = [note for note in exp.notes if "fetched for inspection" in note]
    assert len(notes) == (seed in ways)
