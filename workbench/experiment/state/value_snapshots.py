"""Small values that objects keep: compared across processes, copied, and restored.

A value is *known* if all of it can be compared: numbers, strings, small tensors and arrays, random
number generators (except those of the process, which all code draws from), and lists, tuples,
dictionaries, sets and queues of such values, nested too. What distinguishes it from other values
(`encoded`) depends on contents alone, not on addresses or hashes, so that processes can compare
theirs. Objects of other kinds are not known, nor is what holds one, nor is what is large
(`MOST_ELEMENTS`, `MOST_BYTES`): of such a container only the length is known. Values that are
inspected together share a `Budget`.

A copy refers to the object from which it was made. In the same process that object gets its
contents back, with the objects inside it, so that all its other holders see them too. In another
process (`Copy.restored`) the object at the same place stands for it if it was never replaced;
otherwise a new one is created.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import marshal
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from enum import Enum
from itertools import chain
from operator import is_
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch

from workbench.experiment.state import random_generators
from workbench.experiment.state.host_bytes import host_bytes
from workbench.modes.core.containers import (
    CONTAINERS,
    contents_of,
    pythons_own,
    refill,
    size_of,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_ELEMENTS = 4_096
"""Maximum number of elements of a container whose contents are known."""
MOST_BYTES = 64 * 2**10
"""Maximum size of a tensor, an array or a string."""
_MOST_INSIDE = 4 * MOST_ELEMENTS
"""Maximum number of elements of a container and of those inside it, in total."""
_MOST_BYTES_INSIDE = 2**20
"""Maximum size of the tensors, arrays and strings in it, in total."""
_MOST_ARRAYS = 2_048
"""Maximum number of tensors and arrays in all values that are inspected together; each is queried
by itself."""
_GENERATOR_BYTES = 2_500
"""Approximate size of the state of one generator."""
_MOST_LEVELS = 16
_MOST_AT_ONCE = 64
_EXACT = frozenset({bool, int, float, complex, str, bytes, type(None)})
_PLAIN = (bool, int, float, complex, str, bytes)
_SPELLED = (
    *(range, torch.dtype, torch.device, PurePath),
    *(dt.date, dt.time, dt.timedelta),
)
"""Types of values that never change and whose ``repr`` identifies them."""
_SIZED = (*CONTAINERS, tuple, frozenset)
_CHANGING = (*CONTAINERS, torch.Tensor, np.ndarray, *random_generators.KINDS)
_EMPTY: dict[type, tuple[Any, ...]] = {
    list: (), dict: (), set: (), OrderedDict: (), Counter: ()
}  # fmt: skip
"""Types of containers that can be created, and the arguments for an empty one."""


class CannotRestoreError(Exception):
    """No object can take the contents, and none of its kind can be created."""


class _UnknownError(Exception):
    """Something in a value cannot be compared, or the value is too large."""


class Encoded(NamedTuple):
    """Encoding that distinguishes a value from others."""

    content: bytes
    """The same in any process; empty if there is nothing to distinguish, as for None."""
    is_known: bool
    """Whether it covers all of the contents."""
    cost: _Cost
    """Cost of inspecting all of them."""
    is_fixed: bool = False
    """Whether nothing inside a container can change: with the same elements it is the same."""


class _Cost(NamedTuple):
    """Cost of inspecting a value."""

    elements: int = 0
    bytes: int = 0
    arrays: int = 0

    def minus(self, other: _Cost) -> _Cost:
        """Return what is left after subtracting ``other``.

        Raises:
            _UnknownError: less than nothing is left.
        """
        left = _Cost(*(one - its for one, its in zip(self, other, strict=True)))
        if min(left) < 0:
            raise _UnknownError
        return left


_MOST = _Cost(_MOST_INSIDE, _MOST_BYTES_INSIDE, _MOST_ARRAYS)
_MOST_TOGETHER = _Cost(2 * _MOST_INSIDE, 4 * _MOST_BYTES_INSIDE, _MOST_ARRAYS)


class Budget:
    """Remaining cost that may be spent on values that are inspected together.

    It is spent in the same way in every process that inspects the same values in the same order.
    """

    def __init__(self) -> None:
        self._left = _MOST_TOGETHER

    def spent(self, value: Any, found: Encoded) -> Encoded:
        """Return ``found`` after subtracting its cost; ``value`` is unknown if that is too much."""
        try:
            self._left = self._left.minus(found.cost)
        except _UnknownError:
            return _unknown(value)
        return found


class Fixed:
    """A container of values that never change, compared by its elements without encoding it.

    Args:
        value: the container, which has been encoded.
        found: its encoding.
    """

    def __init__(self, value: Any, found: Encoded) -> None:
        self._value, self._found = value, found
        self._elements = _elements(value)

    def again(self, value: Any, budget: Budget) -> Encoded | None:
        """Return the encoding of ``value``; None if it may be different by now."""
        if value is not self._value:
            return None
        now = _elements(value)
        if len(now) != len(self._elements) or not all(map(is_, now, self._elements)):
            return None
        return budget.spent(value, self._found)


def encoded(value: Any, budget: Budget | None = None) -> Encoded:
    """Encode ``value`` by its contents, or by its kind and length, or not at all.

    Args:
        value: any value.
        budget: budget of all values that are inspected together; None if it is inspected alone.
    """
    encoder = _Encoder()
    try:
        content = b"" if value is None else encoder.whole(value)
    except Exception:  # noqa: BLE001 - methods of the user's are called, which may raise anything
        return _unknown(value)
    found = Encoded(content, is_known=True, cost=encoder.cost, is_fixed=encoder.is_fixed)
    return found if budget is None else budget.spent(value, found)


def _unknown(value: Any) -> Encoded:
    return Encoded(_kind_and_length(value), is_known=False, cost=_Cost())


def _elements(value: Any) -> list[Any]:
    """Return the elements of a container: of a dictionary its keys, then its values."""
    own = pythons_own(cast("type[Any]", type(value)))
    return [*own.__iter__(value), *(own.values(value) if issubclass(own, dict) else ())]


def _kind_and_length(value: Any) -> bytes:
    """Encode the kind and the length of ``value``; ``b""`` if it has no length."""
    if not isinstance(value, _SIZED):
        return b""
    return _dumped((type(value).__qualname__, size_of(value)))


def keep(value: Any, first: Any = None) -> Any:
    """Return a copy of a known value; the value itself if it never changes.

    Args:
        value: value to copy.
        first: result of this function for the value that was first at the same place.
    """
    if isinstance(value, _CHANGING):
        return Copy(value, first)
    if isinstance(value, tuple):
        copy = Copy(cast("Any", value), first)
        return copy if any(isinstance(one, Copy) for one in copy.contents) else cast("Any", value)
    return value


def restored(kept: Any, now: Any = None, *, exactly: bool = False) -> Any:
    """Return the value for which `keep` returned ``kept``; see `Copy.restored`."""
    return kept.restored(now, exactly=exactly) if isinstance(kept, Copy) else kept


class Copy:
    """Restorable contents of a tensor, an array, a generator, a container or a tuple.

    Args:
        value: value to copy; it has to be known.
        first: copy of the value that was first at the same place.
    """

    def __init__(self, value: Any, first: Any = None) -> None:
        self.source: Any = value
        """The object itself; None in another process."""
        self.kind = cast("type[Any]", type(value))
        self.is_first = isinstance(first, Copy) and first.source is value
        """Whether it is the object that was first at its place."""
        self.is_generator = isinstance(value, random_generators.KINDS)
        self.made_with = _made_with(value)
        """Arguments for creating an empty one; None if none can be created."""
        inside = cast("Copy", first).contents if self.is_first else None
        self.contents: Any
        if isinstance(value, torch.Tensor):
            self.contents = value.detach().clone()
        elif isinstance(value, np.ndarray):
            self.contents = cast("Any", value).copy()
        elif self.is_generator:
            self.contents = random_generators.state_of(value)
        elif isinstance(value, dict):
            pairs = contents_of(value)
            self.contents = {key: keep(one, (inside or {}).get(key)) for key, one in pairs}
        elif isinstance(value, set):
            self.contents = contents_of(value)
        else:
            firsts = inside or []
            self.contents = [
                keep(one, firsts[at] if at < len(firsts) else None)
                for at, one in enumerate(values_of(value))
            ]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the object, and without a factory unknown to other processes."""
        state = {**vars(self), "source": None}
        try:
            pickle.dumps(self.made_with)
        except Exception:  # noqa: BLE001 - what a factory of the user's raises
            state["made_with"] = None
        return state

    def restored(self, now: Any = None, *, exactly: bool = False) -> Any:
        """Return the value with these contents, to be stored at its place.

        Args:
            now: what is at its place; it gets the contents if it is known to be the same object.
            exactly: the object that was copied gets them, wherever it is now.

        Raises:
            CannotRestoreError: a container, or a generator, of this kind cannot be created.
        """
        here = self._object_here(now, exactly)
        if self.is_generator:
            return self._generator(here)
        if isinstance(self.contents, (torch.Tensor, np.ndarray)):
            return _written(here, self.contents)
        if isinstance(self.contents, dict):
            inside = cast("dict[Any, Any]", {} if here is None else here)
            contents = cast("dict[Any, Any]", self.contents)
            elements = [
                (key, restored(one, dict.get(inside, key), exactly=exactly))
                for key, one in contents.items()
            ]
        else:
            nows: list[Any] = [] if here is None or isinstance(here, set) else [*values_of(here)]
            elements = [
                restored(one, nows[at] if at < len(nows) else None, exactly=exactly)
                for at, one in enumerate(cast("list[Any]", self.contents))
            ]
        if issubclass(self.kind, tuple):
            return self._tuple_of(elements, here)
        if here is None:
            if self.made_with is None:
                raise CannotRestoreError(self.kind.__name__)
            here = self.kind(*self.made_with)
        refill(here, elements)
        return here

    def _object_here(self, now: Any, exactly: bool) -> Any:
        """Return the object that gets the contents; None if a new one is needed."""
        if exactly and self.source is not None:
            return self.source
        is_it = now is self.source if self.source is not None else self.is_first
        return now if is_it and type(now) is self.kind else None

    def _generator(self, here: Any) -> Any:
        if here is None:
            try:
                here = random_generators.made(*cast("tuple[str, str]", self.made_with))
            except ValueError as error:
                raise CannotRestoreError(*error.args) from error
        random_generators.set_state(here, self.contents)
        return here

    def _tuple_of(self, elements: list[Any], here: Any) -> Any:
        if here is not None and [*map(id, here)] == [*map(id, elements)]:
            return here
        if self.kind is tuple:
            return tuple(elements)
        if not hasattr(self.kind, "_make"):
            raise CannotRestoreError(self.kind.__name__)
        return cast("Any", self.kind)._make(elements)


def _made_with(value: Any) -> tuple[Any, ...] | None:
    if isinstance(value, random_generators.KINDS):
        return random_generators.made_with(value)
    if type(value) is defaultdict:
        return (cast("Any", value).default_factory,)
    if type(value) is deque:
        return (), cast("deque[Any]", value).maxlen
    return _EMPTY.get(type(value))


def _written(here: Any, contents: Any) -> Any:
    """Return ``here`` with these contents, or a copy of the contents if it cannot hold them."""
    if isinstance(contents, np.ndarray):
        if here is None or (here.shape, here.dtype) != (contents.shape, contents.dtype):
            return cast("Any", contents).copy()
        if here.tobytes() != contents.tobytes():
            if not here.flags.writeable:
                return cast("Any", contents).copy()
            np.copyto(here, contents)
        return here
    if here is None or (here.shape, here.dtype) != (contents.shape, contents.dtype):
        return contents.clone()
    if _bytes_of(here) != _bytes_of(contents):
        try:
            with torch.no_grad():
                here.copy_(contents)
        except RuntimeError:  # an inference tensor, or one whose elements share memory
            return contents.clone()
    return here


# -- what distinguishes a value -------------------------------------------------------------


def _dumped(value: Any) -> bytes:
    # this version has no references, which would make equal values differ if they are one object
    return marshal.dumps(value, 2)


class _Encoder:
    """Encodes a value level by level, so that Python does not query each element.

    The kinds of all values of a level determine how its parts and the next level are to be read:
    two values have the same parts only if they have the same contents.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._left = _MOST
        self._level = 0
        self.is_fixed = True
        """Whether nothing that a container holds can change."""

    @property
    def cost(self) -> _Cost:
        """Cost of what was encoded."""
        return _MOST.minus(self._left)

    def whole(self, value: Any) -> bytes:
        """Encode a value.

        Raises:
            _UnknownError: something in it cannot be compared, or it is too large.
        """
        level = [value]
        for self._level in range(_MOST_LEVELS):
            level = self._next(level)
            if not level:
                return _dumped(self._parts)
        raise _UnknownError

    def _next(self, values: list[Any]) -> list[Any]:
        """Encode ``values`` without their contents, and return these."""
        kinds = [*map(type, values)]
        distinct = dict.fromkeys(kinds)
        if distinct.keys() <= _EXACT:
            self._plain(values, distinct)
            return []
        names = [kind.__qualname__ for kind in (distinct if len(distinct) == 1 else kinds)]
        self._add(names, len(values))
        inside: list[Any] = []
        for kind in distinct:
            group = values
            if len(distinct) > 1:
                group = [one for one, its in zip(values, kinds, strict=True) if its is kind]
            inside += self._inside(kind, group)
        return inside

    def _inside(self, kind: type, group: list[Any]) -> Iterable[Any]:
        """Encode values of one kind; return what they hold."""
        if issubclass(kind, _CHANGING) and (self._level or not issubclass(kind, CONTAINERS)):
            self.is_fixed = False
        if issubclass(kind, (dict, set, frozenset, list, tuple, deque)):
            return self._elements_of(kind, group)
        if kind in _EXACT:
            self._plain(group, (kind,))
        elif issubclass(kind, torch.Tensor):
            self._tensors(group)
        elif issubclass(kind, (np.ndarray, np.generic)):
            self._arrays(group, kind)
        elif issubclass(kind, random_generators.KINDS):
            self._generators(group)
        elif issubclass(kind, _PLAIN):  # a subclass may have any `repr`
            self._add([_printed(one) for one in group])
        elif issubclass(kind, Enum):
            self._add([one.name or one.value for one in group])  # combined flags have no name
        elif issubclass(kind, _SPELLED):
            self._add([*map(repr, group)])
        else:
            raise _UnknownError
        return ()

    def _elements_of(self, kind: type, group: list[Any]) -> Iterable[Any]:
        own = pythons_own(kind)
        lengths = [*map(own.__len__, group)]
        self._spend(_Cost(elements=sum(lengths)))
        if max(lengths) > MOST_ELEMENTS:
            raise _UnknownError
        self._add(lengths, [one.maxlen for one in group] if issubclass(kind, deque) else None)
        if issubclass(kind, dict):
            keys = [*chain.from_iterable(map(own.__iter__, group))]
            _check_keys(keys)
            return chain(keys, chain.from_iterable(map(own.values, group)))
        elements = map(own.__iter__, group)
        if issubclass(kind, (set, frozenset)):
            return chain.from_iterable(_in_order([*one]) for one in elements)
        return chain.from_iterable(elements)

    def _plain(self, values: list[Any], kinds: Iterable[type]) -> None:
        if str in kinds or bytes in kinds:
            self._charge([len(one) for one in values if isinstance(one, (str, bytes))])
        self._add(values)

    def _arrays(self, arrays: list[Any], kind: type) -> None:
        if any(one.dtype.hasobject for one in arrays):
            raise _UnknownError
        scalar = issubclass(kind, np.generic)
        self._spend(_Cost(arrays=0 if scalar else len(arrays)))
        self._charge([one.nbytes for one in arrays])
        # each time span may have a unit of its own
        if issubclass(kind, (np.number, np.bool_)) and not issubclass(kind, np.timedelta64):
            self._add(np.array(arrays, kind).tobytes())
        else:
            self._add([(one.dtype.str, one.shape, one.tobytes()) for one in arrays])

    def _generators(self, generators: list[Any]) -> None:
        if not all(map(random_generators.is_generator, generators)):
            raise _UnknownError
        if any(map(random_generators.is_of_process, generators)):
            raise _UnknownError
        states = [
            random_generators.comparable(random_generators.state_of(one)) for one in generators
        ]
        self._charge([_GENERATOR_BYTES] * len(states))
        self._add([random_generators.made_with(one) for one in generators])
        self._add([_Encoder().whole(state) for state in states])

    def _tensors(self, tensors: list[torch.Tensor]) -> None:
        self._spend(_Cost(arrays=len(tensors)))
        try:
            for first in range(0, len(tensors), _MOST_AT_ONCE):  # most lists of samples end here
                self._charge([one.nbytes for one in tensors[first : first + _MOST_AT_ONCE]])
            self._add(*_contents_of_tensors(tensors))
        except RuntimeError as error:  # what torch raises for values that cannot be read
            raise _UnknownError from error

    def _charge(self, sizes: list[int]) -> None:
        self._spend(_Cost(bytes=sum(sizes)))
        if max(sizes, default=0) > MOST_BYTES:
            raise _UnknownError

    def _spend(self, cost: _Cost) -> None:
        self._left = self._left.minus(cost)

    def _add(self, *part: Any) -> None:
        self._parts.append(_dumped(part))


def _contents_of_tensors(tensors: list[torch.Tensor]) -> list[Any]:
    """Return dtypes, shapes and values.

    Tensors that are alike are read all at once, which takes a tenth of the time.

    Raises:
        RuntimeError: the values of one cannot be read.
    """
    dtypes, shapes = [one.dtype for one in tensors], [one.shape for one in tensors]
    if len(set(dtypes)) == 1 and len(tensors) > 1:
        with contextlib.suppress(RuntimeError), torch.no_grad():  # on several devices
            if len(set(shapes)) == 1:
                values = _bytes_of(torch.stack(tensors))
                return [str(dtypes[0]), len(tensors), tuple(shapes[0]), values]
            if all(len(shape) == 1 for shape in shapes):
                values = _bytes_of(torch.cat(tensors))
                return [str(dtypes[0]), [shape[0] for shape in shapes], values]
    return [
        (str(dtype), tuple(shape), _bytes_of(tensor))
        for dtype, shape, tensor in zip(dtypes, shapes, tensors, strict=True)
    ]


def _bytes_of(tensor: torch.Tensor) -> bytes:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise RuntimeError
    return host_bytes(tensor).tobytes()


def _printed(value: Any) -> str:
    base: Any = next(base for base in _PLAIN if isinstance(value, base))
    return base.__repr__(value)


def _check_keys(keys: Iterable[Any]) -> None:
    """Check the keys of a dictionary or the elements of a set.

    Raises:
        _UnknownError: one is not a plain value: its hash may be its address.
    """
    if not ({*map(type, keys)} <= _EXACT or all(map(_is_key, keys))):
        raise _UnknownError


def _is_key(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_key, cast("Iterable[Any]", value)))
    return value is None or isinstance(value, (*_PLAIN, np.generic))


def _in_order(elements: Any) -> list[Any]:
    """Return the elements of a set, in an order that depends on their contents."""
    _check_keys(elements)
    kinds = {*map(type, elements)}
    if len(kinds) == 1 and kinds <= {int, str, bytes}:
        return sorted(elements)
    if kinds <= _EXACT:
        return sorted(elements, key=repr)
    return sorted(elements, key=lambda one: _Encoder().whole(one))
