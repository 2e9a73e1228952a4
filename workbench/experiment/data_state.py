"""What a data set keeps from sample to sample: a count, a cache, how hard its samples are by now.

One process makes all samples in the order of the batches, and a data set that counts them gives the
next one by what it has counted. On ranks that make a part each it would count other ones. So what
it keeps is treated as the state of a generator is (`workbench.experiment.data_generators`): it is
put back where a batch is only looked at, and where making a sample changes it every rank makes
whole batches, and it comes home.

Looked at are objects of a person's own that a data set, a transform or a ``collate_fn`` consists
of: numbers and strings in their attributes, small tensors and arrays, and containers of such. What
is large (`MOST_ELEMENTS`, `MOST_BYTES`) is known by its length alone, and stays where it is.
"""

from __future__ import annotations

import operator
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch.utils.data import DataLoader

from workbench.experiment.module_containers import CONTAINERS, contents_of, refill
from workbench.experiment.object_copy import attributes, never_changes
from workbench.experiment.schedule_copy import is_users

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_ELEMENTS = 4_096
"""Of a container whose contents are kept, and come home."""
MOST_BYTES = 64 * 2**10
"""Of a tensor or an array."""
_MOST_SMALL = 64
"""Elements that are compared, and looked into."""
_MOST_OBJECTS = 1_000
_PLAIN = (bool, int, float, complex, str, bytes)


class _Gone(Enum):
    """Picklable, and the same one in each process."""

    GONE = 0


_GONE = _Gone.GONE


class _Place(NamedTuple):
    """Where a value is: its owner's attribute."""

    owner: Any
    name: str
    value: Any


class DataState:
    """What objects keep, and kept when this was made.

    Args:
        roots: a data set, what it is collated by.
    """

    def __init__(self, *roots: Any) -> None:
        self._roots = roots
        self._owners: dict[str, Any] = {}
        self._begun = self._now()

    @property
    def is_any(self) -> bool:
        """Whether there is an object of a person's own."""
        return bool(self._owners)

    def mark(self) -> bytes:
        """The same, in any process, wherever the same is kept."""
        # as text: a pickle tells which of equal values are one object
        found = sorted((path, _told(one.value)) for path, one in self._look().items())
        return repr(found).encode(errors="surrogatepass")

    def changed(self) -> list[str]:
        """By name, what is not as it was at first."""
        return list(self.get_state())

    def get_state(self) -> dict[str, Any]:
        """What is not as it was at first, for `set_state`, here or of a copy in another process."""
        now = self._now()
        begun = self._begun
        found = {path: one for path, one in now.items() if not _same(one, begun.get(path, _GONE))}
        return found | {path: _GONE for path in self._begun if path not in now}

    def set_state(self, state: dict[str, Any]) -> None:
        """Have the objects keep what was kept when `get_state` was asked."""
        places = self._look()
        for path in {**self._begun, **places, **state}:
            self._put(path, state.get(path, self._begun.get(path, _GONE)), places)

    def _put(self, path: str, wanted: Any, places: dict[str, _Place]) -> None:
        place = places.get(path) or self._new_place(path)
        if place is None or _same(_copied(place.value), wanted):
            return
        own = vars(place.owner)
        if wanted is _GONE:
            own.pop(place.name, None)
        elif not isinstance(wanted, _Contents):
            own[place.name] = _copied(wanted)
        elif wanted.elements is not None:
            if type(place.value) is not wanted.kind:
                own[place.name] = wanted.kind()
            refill(own[place.name], list(wanted.elements))

    def _new_place(self, path: str) -> _Place | None:
        """Of what was made on a rank, and is not here yet."""
        above, _, name = path.rpartition(".")
        owner = self._owners.get(above)
        return None if owner is None else _Place(owner, name, _GONE)

    def _now(self) -> dict[str, Any]:
        return {path: _copied(place.value) for path, place in self._look().items()}

    def _look(self) -> dict[str, _Place]:
        """Every value that may change, by the way to it."""
        found: dict[str, _Place] = {}
        self._owners = {}
        seen: set[int] = set()
        waiting = deque((type(root).__name__, root) for root in self._roots)
        while waiting and len(seen) < _MOST_OBJECTS:
            path, owner = waiting.popleft()
            if id(owner) in seen:
                continue
            seen.add(id(owner))
            if isinstance(owner, (*CONTAINERS, tuple)):
                waiting.extend((f"{path}[{at}]", one) for at, one in _objects_in(owner))
                continue
            is_own = is_users(type(owner).__module__)
            if is_own:
                self._owners[path] = owner
            for name, value in attributes(owner).items():
                at = f"{path}.{name}"
                if is_own and _may_change(value) and name in getattr(owner, "__dict__", ()):
                    found[at] = _Place(owner, name, value)
                elif not never_changes(value) and not isinstance(value, (torch.Tensor, np.ndarray)):
                    waiting.append((at, value))
        return found


class _Contents:
    """Of a container.

    Args:
        value: the container.
    """

    def __init__(self, value: Any) -> None:
        self.kind = type(value)
        self.length = len(value)
        self.elements: list[Any] | None = None
        """None where there are too many."""
        if self.length <= MOST_ELEMENTS:
            self.elements = contents_of(value)

    def is_as(self, other: _Contents) -> bool:
        """Whether it has the same elements, as far as they are known."""
        if (self.kind, self.length) != (other.kind, other.length):
            return False
        if self.elements is None or other.elements is None:
            return True
        if all(map(operator.is_, self.elements, other.elements)):
            return True
        return all(map(_same_element, self.elements, other.elements))


def _objects_in(container: Any) -> Iterator[tuple[Any, Any]]:
    if len(container) > _MOST_SMALL:
        return
    pairs = container.items() if isinstance(container, dict) else enumerate(container)
    for at, one in cast("Any", pairs):
        if not never_changes(one) and not isinstance(one, (torch.Tensor, np.ndarray)):
            yield at, one


def _may_change(value: Any) -> bool:
    if isinstance(value, _PLAIN):
        return True
    if isinstance(value, torch.Tensor):
        return value.layout is torch.strided and value.nbytes <= MOST_BYTES
    if isinstance(value, np.ndarray):
        return cast("Any", value).nbytes <= MOST_BYTES
    if not isinstance(value, CONTAINERS):
        return False
    items = cast("Any", value.values() if isinstance(value, dict) else value)
    return len(items) > _MOST_SMALL or all(map(_is_element, items))


def _is_element(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_element, cast("tuple[Any, ...]", value)))
    return value is None or isinstance(value, (*_PLAIN, torch.Tensor, np.ndarray, np.generic))


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return cast("Any", value).copy()
    return _Contents(value) if isinstance(value, CONTAINERS) else value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, _Contents) and isinstance(other, _Contents):
        return one.is_as(other)
    return _same_element(one, other)


def _same_element(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        alike = (one.shape, one.dtype) == (other.shape, other.dtype)
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, tuple):
        items = cast("tuple[Any, ...]", one)
        return len(items) == len(other) and all(map(_same_element, items, other))
    return isinstance(one, (*_PLAIN, np.generic)) and bool(one == other)


def _told(value: Any) -> Any:
    """What tells it apart, the same in any process."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous().reshape(-1)
        return tuple(value.shape), plain.view(torch.uint8).numpy().tobytes()
    if isinstance(value, np.ndarray):
        return cast("Any", value).shape, value.tobytes()
    if isinstance(value, CONTAINERS):
        items = cast("Any", value.values() if isinstance(value, dict) else value)
        small = len(items) <= _MOST_SMALL and not isinstance(value, set)
        return len(items), [one for one in items if isinstance(one, _PLAIN)] if small else None
    return value


def data_state_of(loader: DataLoader[Any]) -> DataState | None:
    """What the data set of a loader keeps; None where nothing of it is a person's own."""
    collate: Any = loader.collate_fn
    found = DataState(loader.dataset, getattr(collate, "__self__", collate))
    return found if found.is_any else None
