"""Python's and NumPy's generators are remembered before every step, and exactly."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from workbench.experiment.state import host_random
from workbench.experiment.state.host_random import HostRandom


@pytest.fixture(autouse=True)
def _generators() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(3)
    np.random.seed(3)
    yield
    random.setstate(python)
    np.random.set_state(numpy)


DRAWS: dict[str, Callable[[], Any]] = {
    "random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),
    "numpy": np.random.rand,
    "numpy's normal numbers, of which one waits": np.random.randn,
    "a whole state": lambda: [random.getrandbits(32) for _ in range(624)],
    "a whole state of numpy's": lambda: np.random.bytes(4 * 624),
    "seeds": lambda: (random.seed(9), np.random.seed(9), random.random(), np.random.rand()),
}


@pytest.fixture(params=["memory", "functions"])
def state(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> HostRandom:
    if request.param == "functions":
        monkeypatch.setattr(host_random._Python, "found", classmethod(lambda cls: None))
        monkeypatch.setattr(host_random._Numpy, "found", classmethod(lambda cls: None))
    return HostRandom()


@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("draw", DRAWS)
def test_what_was_drawn_is_drawn_again(state: HostRandom, draw: str, before: int) -> None:
    for _ in range(before):
        for each in DRAWS.values():
            each()
        np.random.randn()
        random.gauss(0, 1)
    state.save()
    first = [DRAWS[draw]() for _ in range(3)], random.random(), np.random.randn()
    for _ in range(2):
        state.restore()
        assert ([DRAWS[draw]() for _ in range(3)], random.random(), np.random.randn()) == first


def test_both_are_read_where_they_are() -> None:
    """On this Python and this NumPy; elsewhere their functions are called, 20 us a step."""
    assert host_random._Python.found() is not None
    assert host_random._Numpy.found() is not None


def test_another_bit_generator_is_found(state: HostRandom) -> None:
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(1))
        state.find()
        state.save()
        first = np.random.rand()
        state.restore()
        assert np.random.rand() == first
    finally:
        np.random.set_bit_generator(before)


def test_nothing_is_written_before_anything_was_saved(state: HostRandom) -> None:
    before = random.getstate()
    state.restore()
    assert random.getstate() == before


@pytest.mark.parametrize("draw", DRAWS)
def test_a_draw_is_detected(draw: str, state: HostRandom) -> None:
    assert not state.moved(), "nothing was saved"
    state.save()
    before = pickle.dumps(state.read())
    assert not state.moved()
    DRAWS[draw]()
    assert state.moved()
    assert pickle.dumps(state.read()) != before
    state.restore()
    assert not state.moved()
    assert pickle.dumps(state.read()) == before
