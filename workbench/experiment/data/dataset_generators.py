"""Generators of random numbers that samples are made with: found, read and written.

Beside the three of the process (Python's, NumPy's, torch's) a data set may hold some of its own, or
a transform in it may, or code of either may reach one by a global name. They are found by what
pickle visits, since that is what travels to a rank, and by the names in the code of what is
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
from workbench.experiment.state.small_values import encoded

if TYPE_CHECKING:
    from workbench.experiment.data.sources import DataSource

_VALUES = (torch.Tensor, np.ndarray)
_TRUSTED = ("torch", "numpy", "random", "builtins", "cloudpickle")


class Held:
    """What making samples goes by and changes, besides the generators of the process.

    Args:
        find: finds the generators that samples may draw from; the same ones in the same order
            wherever the data set is a copy of the same one, and none was made for a sample.
        kept: what the data set keeps, where it may; a generator that is made for a sample too.
    """

    def __init__(self, find: Callable[[], list[Any]], kept: DataState | None = None) -> None:
        self._find, self.kept = find, kept
        self.generators = find()

    def find_again(self) -> None:
        """Find the generators anew: one may have been made for a sample."""
        self.generators = self._find()

    def read(self) -> Any:
        """What it is now, for `write`, here or of a copy in another process."""
        return read(self.generators), None if self.kept is None else self.kept.get_state()

    def write(self, state: Any) -> list[str]:
        """Bring back what `read` gave.

        Returns:
            By name, what the data set keeps otherwise in another process and could not come.
        """
        states, kept = state
        lost = [] if self.kept is None or kept is None else self.kept.set_state(kept)
        if len(states) != len(self.generators):  # one was made since, or is no more
            self.find_again()
        if len(states) == len(self.generators):
            write(self.generators, states)
        elif not lost:
            lost.append("a generator of random numbers that samples draw from")
        return lost


def held_by(source: DataSource | None) -> Held:
    """What making samples of ``source`` goes by and changes."""
    return Held(lambda: drawn_by(source), kept_by(source))


def drawn_by(source: DataSource | None) -> list[Any]:
    """The generators that making samples of ``source`` may draw from, besides the process's."""
    if not isinstance(source, LoaderSource):
        return []
    return found_in(source.loader.dataset, source.loader.collate_fn)


def kept_by(source: DataSource | None) -> DataState | None:
    """What the data set keeps beside generators, where it may."""
    return data_state_of(source.loader) if isinstance(source, LoaderSource) else None


def found_in(*values: Any) -> list[Any]:
    """The generators that pickle, or a name in the code that it visits, comes upon."""
    finder = _Finder()
    try:
        finder.dump(values)
    except Exception:  # noqa: BLE001 - what cannot be pickled is refused where it is sent
        return list(finder.found.values())
    return list(finder.found.values())


def read(generators: Sequence[Any]) -> list[Any]:
    """Their states, to be compared, kept or given to `write`."""
    return [state_of(one) for one in generators]


def write(generators: Sequence[Any], states: Sequence[Any]) -> None:
    """Bring back what `read` gave."""
    for one, state in zip(generators, states, strict=True):
        set_state(one, state)


def move_apart(generators: Sequence[Any], rank: int) -> None:
    """Have them go on with other numbers than those of any other rank, by what they were."""
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
    """All that samples may draw from: the process's three generators, and those of a data set.

    Of torch's it is the CPU's; samples are made there. What a data set keeps from sample to sample
    is read and written with them.

    Args:
        find: finds those of the data set.
        kept: what it keeps otherwise.
    """

    def __init__(self, find: Callable[[], list[Any]], kept: DataState | None = None) -> None:
        self.held = Held(find, kept)
        """Those of the data set, and what it keeps otherwise."""
        self._host = HostRandom()

    def look_again(self) -> bool:
        """Find those of the data set anew, and say whether there are more: made for a sample."""
        before = len(self.held.generators)
        self.held.find_again()
        return len(self.held.generators) != before

    def changed(self) -> list[str]:
        """What the data set keeps otherwise than at first, by name."""
        return [] if self.held.kept is None else self.held.kept.changed()

    def mark(self) -> bytes:
        """What is another one after any draw; some 20 us."""
        torchs = torch.default_generator.get_state().numpy().tobytes()
        drawn = [encoded(comparable(state_of(one))).content for one in self.held.generators]
        kept = b"" if self.held.kept is None else self.held.kept.mark()
        return torchs + pickle.dumps((self._host.read(), drawn)) + kept

    def state(self) -> Any:
        """What they are now, for `go_to`, here or in another process."""
        numpys: Any = np.random.get_state(legacy=False)
        return torch.default_generator.get_state(), random.getstate(), numpys, self.held.read()

    def go_to(self, state: Any) -> None:
        """Go on from a `state`."""
        torchs, pythons, numpys, held = state
        torch.default_generator.set_state(torchs)
        random.setstate(pythons)
        np.random.set_state(numpys)
        self.held.write(held)


def _far(one: torch.Generator, rank: int) -> int:
    return int(torch.randint(2**62, (), generator=one, device=one.device)) * rank


class _Nowhere:
    """A stream whose reader is nobody."""

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
        self._look_at_code(obj)
        return None

    def _look_at_code(self, obj: Any) -> None:
        """What code reaches by a global name: functions of a module go by reference."""
        if id(obj) in self._seen or str(getattr(obj, "__module__", "")).split(".")[0] in _TRUSTED:
            return
        if isinstance(obj, MethodType):
            obj = obj.__func__
        if isinstance(obj, type):
            self._seen.add(id(obj))
            for base in obj.__mro__[:-1]:
                for one in vars(base).values():
                    self._look_at_code(one)
        elif isinstance(obj, FunctionType):
            self._seen.add(id(obj))
            for name in obj.__code__.co_names:
                value = obj.__globals__.get(name)
                if isinstance(value, KINDS):
                    self.persistent_id(value)
                elif isinstance(value, (FunctionType, type)):
                    self._look_at_code(value)
