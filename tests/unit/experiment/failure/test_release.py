"""Garbage that is looked for among what is new."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from workbench.experiment.failure.release import collecting_only_new


class Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _no_collection_by_itself() -> Iterator[None]:
    is_frozen = gc.get_freeze_count() > 0  # what was imported, by all tests
    gc.unfreeze()
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()
    if is_frozen:
        gc.freeze()


def test_only_what_was_made_since_is_collected_and_the_rest_afterwards() -> None:
    old = weakref.ref(Cycle())
    with collecting_only_new():
        new = weakref.ref(Cycle())
        gc.collect()
        assert new() is None
        assert old() is not None
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert old() is None


def test_what_somebody_froze_stays_so() -> None:
    old = weakref.ref(Cycle())
    gc.freeze()
    with collecting_only_new():
        pass
    gc.collect()
    assert old() is not None
    gc.unfreeze()
    gc.collect()
    assert old() is None


def test_an_error_ends_it_too() -> None:
    with pytest.raises(ValueError, match="inside"), collecting_only_new():
        raise ValueError("inside")
    assert gc.get_freeze_count() == 0
