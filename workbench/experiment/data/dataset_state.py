"""State that a dataset keeps from sample to sample: a count, a cache, the current difficulty.

One process makes all samples in the order of the batches, and a dataset that counts them makes the
next one depend on its count. On ranks that make a part each it would count other samples. So its
state is treated like that of a generator (`workbench.experiment.data.dataset_generators`): it is
restored where a batch is only inspected, and if making a sample changes it, every rank makes whole
batches, and the state is returned to the local process.

Inspected are the attributes of the user's own objects that a dataset, a transform or a
``collate_fn`` consists of: numbers and strings, small tensors and arrays, random number generators,
and containers of such values, nested too (`workbench.experiment.state.value_snapshots`). A
container of other objects, and a large one, is known by its length alone; a large tensor and an
object of another library are not known. What is not known stays on its rank.

Within one process the same objects are restored, with their contents as far as those are known. A
value that was created where there was nothing, or None, stays if it is not known: a first sample
has opened a file. In another process values are found by their paths.
"""

from __future__ import annotations

import pickle
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch.utils.data import DataLoader

from workbench.experiment.state.object_copy import attributes, never_changes
from workbench.experiment.state.user_code import may_be_user_module
from workbench.experiment.state.value_snapshots import (
    MOST_ELEMENTS,
    Budget,
    CannotRestoreError,
    Copy,
    Fixed,
    encoded,
    keep,
    restored,
)
from workbench.modes.core.containers import CONTAINERS, contents_of, refill, size_of, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_SMALL = 64
"""Maximum number of elements of a container that is searched for objects."""
_MOST_OBJECTS = 1_000
_DATA = (torch.Tensor, np.ndarray, *CONTAINERS, tuple, frozenset, str, bytes)
"""Types that are restored although they are not known; a file may be closed when another replaces
it."""


class _Missing(Enum):
    """Markers that can be pickled, and are the same in each process."""

    GONE = 0
    """The attribute does not exist."""
    UNKNOWN = 1
    """The attribute exists, and stays as it is."""


class _Place(NamedTuple):
    """An attribute."""

    owner: Any
    name: str
    value: Any
    content: bytes
    """What distinguishes the value from others."""
    is_known: bool
    """Whether the content covers all of the value."""


class _Found(NamedTuple):
    places: dict[str, _Place]
    """Attributes by path."""
    owners: dict[str, Any]
    """Objects of the user's own, by path."""


class _Kept(NamedTuple):
    content: bytes
    value: Any
    """Result of `keep`, or the marker that it is unknown."""


_NOTHING = _Kept(b"", _Missing.GONE)


class DataState:
    """State that objects keep now, and that they kept at construction.

    Args:
        roots: a dataset, and what collates its samples.
    """

    def __init__(self, *roots: Any) -> None:
        self._roots = roots
        self._fixed: dict[str, Fixed] = {}
        found = self._search()
        self._begun: dict[str, _Kept] = {}
        self._begun = self._latest = self._copied(found)
        self._kinds = {path: type(owner) for path, owner in found.owners.items()}

    @property
    def is_any(self) -> bool:
        """Whether there is an object of the user's own."""
        return bool(self._kinds)

    def mark(self) -> bytes:
        """Return bytes that are the same, in any process that keeps the same."""
        places = self._search().places
        known = [(path, places[path].content) for path in sorted(places) if places[path].content]
        # bytes as they are: as text they would be several times as long
        text = repr([(path, len(content)) for path, content in known])
        return b"".join((text.encode(), *(content for _, content in known)))

    def changed(self) -> list[str]:
        """Name what differs from the beginning, except generators that were drawn from."""
        return [
            path
            for path, one in self.get_state().changed.items()
            if not (isinstance(one, Copy) and one.is_generator)
        ]

    def get_state(self) -> State:
        """Return what they keep now, for `set_state`, here or for a copy in another process."""
        found = self._search()
        self._latest = kept = self._copied(found)
        changed = {
            path: one.value
            for path, one in kept.items()
            if one.content != self._begun.get(path, _NOTHING).content
        }
        for path, one in self._begun.items():
            if one.content and path not in kept and self._is_begun(path, found):
                changed[path] = _Missing.GONE
        return State(self, found, kept, changed)

    def set_state(self, state: State | dict[str, Any]) -> list[str]:
        """Restore in the objects what was kept when `get_state` was called.

        Returns:
            Names of what had changed in another process and could not be restored from its state.
        """
        if isinstance(state, State):
            if state.of is self:
                state.put_back()
                return []
            state = state.portable()
        found = self._search()
        lost = [path for path, one in state.items() if one is _Missing.UNKNOWN]
        for path in {**self._begun, **found.places, **state}:
            wanted = state.get(path, self._begun.get(path, _NOTHING).value)
            owner = found.owners.get(_owner_of(path))
            if wanted is _Missing.UNKNOWN or owner is None:
                continue
            try:
                self._put(path, owner, wanted, found)
            except CannotRestoreError:
                lost += [path] if path in state else []
        return lost

    def _put(self, path: str, owner: Any, wanted: Any, found: _Found) -> None:
        own, name = vars(owner), path.rpartition(".")[2]
        place = found.places.get(path)
        if wanted is _Missing.GONE:
            if place is not None and place.content and self._is_begun(path, found):
                own.pop(name, None)
        elif wanted is not None or place is None or place.content:
            own[name] = restored(wanted, own.get(name))

    def _is_begun(self, path: str, found: _Found) -> bool:
        """Return whether the owner of an attribute exists, and existed at the beginning."""
        above = _owner_of(path)
        return above in found.owners and type(found.owners[above]) is self._kinds.get(above)

    def _copied(self, found: _Found) -> dict[str, _Kept]:
        return {path: self._kept(path, place) for path, place in found.places.items()}

    def _kept(self, path: str, place: _Place) -> _Kept:
        if not place.is_known:
            return _Kept(place.content, _Missing.UNKNOWN)
        before = self._latest.get(path) if self._begun else None
        if before is not None and before.content == place.content:
            last = before.value
            if not isinstance(last, Copy) or last.source is place.value:
                return before
        first = self._begun.get(path, _NOTHING).value
        return _Kept(place.content, keep(place.value, first))

    def _search(self) -> _Found:
        """Return every attribute that may change, and the owners."""
        found, budget = _Found({}, {}), Budget()
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
            own: Any = getattr(owner, "__dict__", None)
            is_own = isinstance(own, dict) and _is_own(owner)
            if is_own:
                found.owners[path] = owner
            for name, value in attributes(owner).items():
                at, is_known = f"{path}.{name}", False
                if is_own and name in own:
                    content, is_known = self._encoded(at, value, budget)
                    found.places[at] = _Place(owner, name, value, content, is_known)
                if not is_known and _may_hold(value):
                    waiting.append((at, value))
        return found

    def _encoded(self, path: str, value: Any, budget: Budget) -> tuple[bytes, bool]:
        """Return what distinguishes a value from others, and whether it covers all of the value."""
        fixed = self._fixed.get(path)
        found = None if fixed is None else fixed.again(value, budget)
        if found is None:
            found = encoded(value, budget)
            self._fixed.pop(path, None)
            if found.is_fixed and isinstance(value, CONTAINERS):
                self._fixed[path] = Fixed(value, found)
        return found.content, found.is_known


class State:
    """State of objects at one time; only what differs from the beginning is pickled.

    Args:
        of: the object whose state it is.
        found: their attributes.
        kept: copies of those that are known.
        changed: those that differ from the beginning.
    """

    def __init__(
        self, of: DataState, found: _Found, kept: dict[str, _Kept], changed: dict[str, Any]
    ) -> None:
        self.of, self.changed = of, changed
        self._owners = [*found.owners.values()]
        self._names: dict[int, dict[str, Any]] = {id(owner): {} for owner in self._owners}
        for path, place in found.places.items():
            one = kept[path].value if place.is_known else _Unknown(place.value)
            self._names[id(place.owner)][place.name] = one

    def __reduce__(self) -> Any:
        return dict, (self.portable(),)

    def portable(self) -> dict[str, Any]:
        """Return what differs from the beginning; what cannot be pickled counts as unknown."""
        return {
            path: one if _is_picklable(one) else _Missing.UNKNOWN
            for path, one in self.changed.items()
        }

    def put_back(self) -> None:
        """Restore it in the same objects, in this process."""
        for owner in self._owners:
            own, names = vars(owner), self._names[id(owner)]
            for name in attributes(owner).keys() & own.keys() - names.keys():
                if _is_seen(own[name]):
                    del own[name]
            for name, kept in names.items():
                if isinstance(kept, _Unknown):
                    kept.put_back(own, name)
                elif kept is not None or name not in own or _is_seen(own[name]):
                    own[name] = restored(kept, exactly=True)


class _Unknown:
    """A value that is not known; of a container it is known which objects it held.

    Args:
        value: the value.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        is_short = isinstance(value, CONTAINERS) and size_of(value) <= MOST_ELEMENTS
        self._contents = contents_of(value) if is_short else None

    def put_back(self, own: dict[str, Any], name: str) -> None:
        is_whole = isinstance(self._value, _DATA) or _is_own(self._value)
        if is_whole or name not in own:
            own[name] = self._value
        if self._contents is not None:
            refill(self._value, self._contents)


def _is_own(value: Any) -> bool:
    """Return whether ``value`` is an object of the user's own, whose attributes are inspected."""
    return may_be_user_module(type(value).__module__)


def _is_seen(value: Any) -> bool:
    """Whether anything of it is known."""
    return _is_own(value) or bool(encoded(value).content)


def _owner_of(path: str) -> str:
    return path.rpartition(".")[0]


def _objects_in(container: Any) -> Iterator[tuple[Any, Any]]:
    """Yield elements that may be searched; none of sets, whose order differs between processes."""
    if isinstance(container, set) or size_of(container) > _MOST_SMALL:
        return
    is_mapping = isinstance(container, dict)
    pairs = contents_of(container) if is_mapping else enumerate(values_of(container))
    for place, (key, one) in enumerate(cast("Any", pairs)):
        if _may_hold(one):
            yield key if isinstance(key, (str, int)) else place, one


def _may_hold(value: Any) -> bool:
    """Whether objects may be found in it."""
    return not never_changes(value) and not isinstance(value, (torch.Tensor, np.ndarray))


def _is_picklable(value: Any) -> bool:
    """Return whether ``value`` can be sent to another process.

    It cannot if a class in it was defined in a cell.
    """
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - what a class of the user's raises
        return False
    return True


def data_state_of(loader: DataLoader[Any]) -> DataState | None:
    """Return what the dataset of a loader keeps; None if no part of it is the user's own."""
    collate: Any = loader.collate_fn
    found = DataState(loader.dataset, getattr(collate, "__self__", collate))
    return found if found.is_any else None
