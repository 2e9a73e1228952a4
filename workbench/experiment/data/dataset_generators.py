"""Random number generators with which samples are made: found, read and written.

Apart from the three of the process (Python's, NumPy's, torch's) a dataset may hold some of its own,
or a transform in it may, or code of either may reach one by a global name. They are found by what
pickle visits, since that is what is sent to a rank, and by the names in the code of what is
visited.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, cast

import cloudpickle
import numpy as np
import torch
from torch.utils.data import DataLoader

from workbench.experiment.data.dataset_state import DataState, data_state_of
from workbench.experiment.data.sources import LoaderSource
from workbench.experiment.state.host_random import HostRandom
from workbench.experiment.state.random_generators import (
    KINDS,
    bits_of,
    comparable,
    is_generator,
    is_of_process,
    set_state,
    state_of,
)
from workbench.experiment.state.value_snapshots import encoded

if TYPE_CHECKING:
    from workbench.experiment.data.sources import DataSource

_VALUES = (torch.Tensor, np.ndarray)
_TRUSTED = ("torch", "numpy", "random", "builtins", "cloudpickle")


class Held:
    """State that making samples depends on and changes, other than the generators of the process.

    Args:
        find: finds the generators that samples may draw from; the same ones in the same order for
            every copy of the same dataset, unless one was created for a sample.
        kept: what the dataset keeps, if it may; this includes a generator that is created for a
            sample.
    """

    def __init__(self, find: Callable[[], list[Any]], kept: DataState | None = None) -> None:
        self._find, self.kept = find, kept
        self.generators = find()

    def find_again(self) -> None:
        """Find the generators again: one may have been created for a sample."""
        self.generators = self._find()

    def read(self) -> Any:
        """Return the current state, for `write`, here or for a copy in another process."""
        return read(self.generators), None if self.kept is None else self.kept.get_state()

    def portable(self) -> Any:
        """Return what `read` does, for another process: of what is kept only what has changed."""
        kept = None if self.kept is None else self.kept.get_state().portable()
        return read(self.generators), kept or None

    def write(self, state: Any) -> list[str]:
        """Restore what `read` returned.

        Returns:
            Names of what the dataset keeps differently in another process and could not be
            transferred.
        """
        states, kept = state
        lost = [] if self.kept is None or kept is None else self.kept.set_state(kept)
        if len(states) != len(self.generators):  # one was created since, or no longer exists
            self.find_again()
        if len(states) == len(self.generators):
            write(self.generators, states)
        elif not lost:
            lost.append("a generator of random numbers that samples draw from")
        return lost


def held_by(source: DataSource | None) -> Held:
    """Return the state that making samples of ``source`` depends on and changes."""
    return Held(lambda: drawn_by(source), kept_by(source))


def held_in_run(source: DataSource | None) -> Held:
    """Return the same for a run, also of a loader whose order is its own."""
    loader = getattr(source, "loader", None)
    if isinstance(source, LoaderSource) or not isinstance(loader, DataLoader):
        return held_by(source)
    made = cast("DataLoader[Any]", loader)
    return Held(lambda: found_in(made.dataset, made.collate_fn), data_state_of(made))


def drawn_by(source: DataSource | None) -> list[Any]:
    """Return the generators that samples of ``source`` may draw from, other than the process's."""
    if not isinstance(source, LoaderSource):
        return []
    return found_in(source.loader.dataset, source.loader.collate_fn)


def kept_by(source: DataSource | None) -> DataState | None:
    """Return what the dataset keeps other than generators, if it may keep anything."""
    return data_state_of(source.loader) if isinstance(source, LoaderSource) else None


def found_in(*values: Any) -> list[Any]:
    """Return the generators that pickle visits, or that a name in the visited code refers to."""
    finder = _Finder()
    try:
        finder.dump(values)
    except Exception:  # noqa: BLE001 - what cannot be pickled is refused where it is sent
        return list(finder.found.values())
    return list(finder.found.values())


def read(generators: Sequence[Any]) -> list[Any]:
    """Return the states of ``generators``, to be compared, stored or passed to `write`."""
    return [state_of(one) for one in generators]


def write(generators: Sequence[Any], states: Sequence[Any]) -> None:
    """Restore what `read` returned."""
    for one, state in zip(generators, states, strict=True):
        set_state(one, state)


def move_apart(generators: Sequence[Any], rank: int) -> None:
    """Let ``generators`` continue with numbers that no other rank has, based on their states."""
    for one in generators:
        if isinstance(one, torch.Generator):
            one.manual_seed((one.initial_seed() + _far(one, rank)) & (2**63 - 1))
        elif isinstance(one, random.Random):
            one.seed(f"{one.getrandbits(64)} {rank}")
        else:
            bits: Any = one if isinstance(one, np.random.BitGenerator) else bits_of(one)
            seed = [rank, *(int(word) for word in bits.random_raw(4))]
            bits.state = type(bits)(np.random.SeedSequence(seed)).state


class Generators:
    """All generators that samples may draw from: the three of the process, and those of a dataset.

    Torch's is the one of the CPU, since samples are made there. What a dataset keeps from sample to
    sample is read and written with them.

    Args:
        find: finds the generators of the dataset.
        kept: what else the dataset keeps.
    """

    def __init__(self, find: Callable[[], list[Any]], kept: DataState | None = None) -> None:
        self.held = Held(find, kept)
        """Generators of the dataset, and what else it keeps."""
        self._host = HostRandom()

    def refresh(self) -> bool:
        """Find the dataset's generators again; return whether some were created for a sample."""
        before = len(self.held.generators)
        self.held.find_again()
        return len(self.held.generators) != before

    def changed(self) -> list[str]:
        """Return the names of what else the dataset keeps that differs from the beginning."""
        return [] if self.held.kept is None else self.held.kept.changed()

    def mark(self) -> bytes:
        """Return bytes that differ after any draw; some 20 us."""
        torchs = torch.default_generator.get_state().numpy().tobytes()
        drawn = [encoded(comparable(state_of(one))).content for one in self.held.generators]
        kept = b"" if self.held.kept is None else self.held.kept.mark()
        return torchs + pickle.dumps((self._host.read(), drawn)) + kept

    def state(self) -> Any:
        """Return the current states, for `go_to`, here or in another process."""
        numpys: Any = np.random.get_state(legacy=False)
        return torch.default_generator.get_state(), random.getstate(), numpys, self.held.read()

    def go_to(self, state: Any) -> None:
        """Continue from a `state`."""
        torchs, pythons, numpys, held = state
        torch.default_generator.set_state(torchs)
        random.setstate(pythons)
        np.random.set_state(numpys)
        self.held.write(held)


def _far(one: torch.Generator, rank: int) -> int:
    return int(torch.randint(2**62, (), generator=one, device=one.device)) * rank


class _Nowhere:
    """A stream that discards what is written."""

    def write(self, data: Any) -> int:
        return len(data)


class _Finder(cloudpickle.Pickler):
    def __init__(self) -> None:
        super().__init__(cast("Any", _Nowhere()))
        self.found: dict[int, Any] = {}
        self._seen: set[int] = set()

    def persistent_id(self, obj: Any) -> Any:
        if is_generator(obj):
            if not is_of_process(obj):
                self.found.setdefault(id(obj), obj)
            return "generator"
        if isinstance(obj, _VALUES):
            return "values"
        self._search_code(obj)
        return None

    def _search_code(self, obj: Any) -> None:
        """Find what code reaches by a global name: module functions are pickled by reference."""
        if id(obj) in self._seen or str(getattr(obj, "__module__", "")).split(".")[0] in _TRUSTED:
            return
        if isinstance(obj, MethodType):
            obj = obj.__func__
        if isinstance(obj, type):
            self._seen.add(id(obj))
            for base in obj.__mro__[:-1]:
                for one in vars(base).values():
                    self._search_code(one)
        elif isinstance(obj, FunctionType):
            self._seen.add(id(obj))
            for name in obj.__code__.co_names:
                value = obj.__globals__.get(name)
                if isinstance(value, KINDS):
                    self.persistent_id(value)
                elif isinstance(value, (FunctionType, type)):
                    self._search_code(value)
