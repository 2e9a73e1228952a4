"""Small values that objects keep: told apart in any process, copied, and put back.

A value is *known* where all of it can be compared: numbers, strings, small tensors and arrays, and
lists, tuples, dictionaries, sets and queues of such, also inside each other. What tells it from
other values (`encoded`) goes by contents alone, not by addresses or hashes, so that processes can
compare theirs. Objects of other kinds are not known, nor is what holds one, and nor is what is
large (`MOST_ELEMENTS`, `MOST_BYTES`): of a container the length is known then.

A copy knows the object that it was made of. In the same process that very object gets its contents
back, with those inside it, so that whoever else has it sees them too. In another process
(`Copy.restored`) the object at the same place stands for it where it was never replaced; otherwise
a new one is made.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import marshal
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from enum import Enum
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch

from workbench.experiment.host_bytes import host_bytes
from workbench.modes.containers import CONTAINERS, refill

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_ELEMENTS = 4_096
"""Of a container whose contents are known."""
MOST_BYTES = 64 * 2**10
"""Of a tensor, an array or a string."""
_MOST_INSIDE = 4 * MOST_ELEMENTS
"""Elements of a container and of those inside it, altogether."""
_MOST_BYTES_INSIDE = 2**20
"""Of tensors, arrays and strings in it."""
_MOST_LEVELS = 16
_MOST_AT_ONCE = 64
_EXACT = frozenset({bool, int, float, complex, str, bytes, type(None)})
_PLAIN = (bool, int, float, complex, str, bytes)
_SPELLED = (
    *(range, torch.dtype, torch.device, PurePath),
    *(dt.date, dt.time, dt.timedelta),
)
"""What never changes and prints itself as what it is."""
_SIZED = (*CONTAINERS, tuple, frozenset)
_EMPTY: dict[type, tuple[Any, ...]] = {
    list: (), dict: (), set: (), OrderedDict: (), Counter: ()
}  # fmt: skip
"""Kinds of containers that can be made anew, and of what."""


class CannotRestoreError(Exception):
    """There is no object to put contents into, and none of its kind can be made."""


class _UnknownError(Exception):
    """Something in a value cannot be compared, or there is too much of it."""


class Encoded(NamedTuple):
    """What tells a value from others."""

    content: bytes
    """The same in any process; empty where there is nothing to tell, as of None."""
    is_known: bool
    """Whether it goes by all of the contents."""


def encoded(value: Any) -> Encoded:
    """What tells ``value`` from others: by its contents, or its kind and length, or not at all."""
    if value is None:
        return Encoded(b"", is_known=True)
    try:
        return Encoded(_encoded(value), is_known=True)
    except Exception:  # noqa: BLE001 - methods of the user's are called, which may raise anything
        return Encoded(_kind_and_length(value), is_known=False)


def _kind_and_length(value: Any) -> bytes:
    """``b""`` where it has no length."""
    if not isinstance(value, _SIZED):
        return b""
    try:
        return _dumped((type(value).__qualname__, len(value)))
    except Exception:  # noqa: BLE001 - and so may their ``__len__``
        return b""


def keep(value: Any, first: Any = None) -> Any:
    """A copy of a known value; the value itself where it never changes.

    Args:
        value: what is copied.
        first: what this gave for the value that was first at the same place.
    """
    if isinstance(value, (torch.Tensor, np.ndarray, *CONTAINERS)):
        return Copy(value, first)
    if isinstance(value, tuple):
        copy = Copy(cast("Any", value), first)
        return copy if any(isinstance(one, Copy) for one in copy.contents) else cast("Any", value)
    return value


def restored(kept: Any, now: Any = None, *, exactly: bool = False) -> Any:
    """The value of which `keep` gave ``kept``; see `Copy.restored`."""
    return kept.restored(now, exactly=exactly) if isinstance(kept, Copy) else kept


class Copy:
    """The contents of a tensor, an array, a container or a tuple, to be put back.

    Args:
        value: what is copied; it has to be known.
        first: the copy of what was first at the same place.
    """

    def __init__(self, value: Any, first: Any = None) -> None:
        self.source: Any = value
        """The object itself; None in another process."""
        self.kind = cast("type[Any]", type(value))
        self.is_first = isinstance(first, Copy) and first.source is value
        """Whether it is the object that was first at its place."""
        self.made_with = _made_with(value)
        """What an empty one is made of; None where none can be made."""
        inside = cast("Copy", first).contents if self.is_first else None
        self.contents: Any
        if isinstance(value, torch.Tensor):
            self.contents = value.detach().clone()
        elif isinstance(value, np.ndarray):
            self.contents = cast("Any", value).copy()
        elif isinstance(value, dict):
            pairs = cast("dict[Any, Any]", value).items()
            self.contents = {key: keep(one, (inside or {}).get(key)) for key, one in pairs}
        elif isinstance(value, set):
            self.contents = [*cast("set[Any]", value)]
        else:
            firsts = inside or []
            self.contents = [
                keep(one, firsts[at] if at < len(firsts) else None) for at, one in enumerate(value)
            ]

    def __getstate__(self) -> dict[str, Any]:
        """Without the object, and without a factory that no other process would find."""
        state = {**vars(self), "source": None}
        try:
            pickle.dumps(self.made_with)
        except Exception:  # noqa: BLE001 - what a factory of the user's raises
            state["made_with"] = None
        return state

    def restored(self, now: Any = None, *, exactly: bool = False) -> Any:
        """The value with these contents, to be put into its place.

        Args:
            now: what is at its place; it gets the contents if it is known to be the one.
            exactly: the object that was copied gets them, wherever it is now.

        Raises:
            CannotRestoreError: a container of this kind cannot be made.
        """
        here = self._object_here(now, exactly)
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
            nows: list[Any] = [] if here is None or isinstance(here, set) else [*here]
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
        """The object that gets the contents; None where a new one is to."""
        if exactly and self.source is not None:
            return self.source
        is_it = now is self.source if self.source is not None else self.is_first
        return now if is_it and type(now) is self.kind else None

    def _tuple_of(self, elements: list[Any], here: Any) -> Any:
        if here is not None and [*map(id, here)] == [*map(id, elements)]:
            return here
        if self.kind is tuple:
            return tuple(elements)
        if not hasattr(self.kind, "_make"):
            raise CannotRestoreError(self.kind.__name__)
        return cast("Any", self.kind)._make(elements)


def _made_with(value: Any) -> tuple[Any, ...] | None:
    if type(value) is defaultdict:
        return (cast("Any", value).default_factory,)
    if type(value) is deque:
        return (), cast("deque[Any]", value).maxlen
    return _EMPTY.get(type(value))


def _written(here: Any, contents: Any) -> Any:
    """``here`` with these contents, or a copy of them where it cannot have them."""
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


# -- what tells a value apart ---------------------------------------------------------------


def _dumped(value: Any) -> bytes:
    # this version has no references, by which equal values that are one object would differ
    return marshal.dumps(value, 2)


def _encoded(value: Any) -> bytes:
    level, encoder = [value], _Encoder()
    for _ in range(_MOST_LEVELS):
        level = encoder.level(level)
        if not level:
            return _dumped(encoder.parts)
    raise _UnknownError


class _Encoder:
    """Encodes a value level by level, so that Python is not asked about each element.

    The kinds of all values of a level tell how its parts and the next level are to be read: two
    values have the same parts only if they have the same contents.
    """

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._elements = _MOST_INSIDE
        self._bytes = _MOST_BYTES_INSIDE

    def level(self, values: list[Any]) -> list[Any]:
        """Encode these but for what they hold, which is given back.

        Raises:
            _UnknownError: one of them cannot be compared, or there is too much of them.
        """
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
        """Encode values of one kind; gives what they hold."""
        if issubclass(kind, (dict, set, frozenset, list, tuple, deque)):
            return self._elements_of(kind, group)
        if kind in _EXACT:
            self._plain(group, (kind,))
        elif issubclass(kind, torch.Tensor):
            self._tensors(group)
        elif issubclass(kind, (np.ndarray, np.generic)):
            self._arrays(group, kind)
        elif issubclass(kind, _PLAIN):  # a class of its own may print itself as it likes
            self._add([_printed(one) for one in group])
        elif issubclass(kind, Enum):
            self._add([one.name or one.value for one in group])  # flags together have no name
        elif issubclass(kind, _SPELLED):
            self._add([*map(repr, group)])
        else:
            raise _UnknownError
        return ()

    def _elements_of(self, kind: type, group: list[Any]) -> Iterable[Any]:
        lengths = [*map(len, group)]
        self._elements -= sum(lengths)
        if self._elements < 0 or max(lengths) > MOST_ELEMENTS:
            raise _UnknownError
        self._add(lengths, [one.maxlen for one in group] if issubclass(kind, deque) else None)
        if issubclass(kind, dict):
            keys = [*chain.from_iterable(group)]
            _check_keys(keys)
            return chain(keys, chain.from_iterable(one.values() for one in group))
        if issubclass(kind, (set, frozenset)):
            return chain.from_iterable(map(_in_order, group))
        return chain.from_iterable(group)

    def _plain(self, values: list[Any], kinds: Iterable[type]) -> None:
        if str in kinds or bytes in kinds:
            self._charge([len(one) for one in values if isinstance(one, (str, bytes))])
        self._add(values)

    def _arrays(self, arrays: list[Any], kind: type) -> None:
        if any(one.dtype.hasobject for one in arrays):
            raise _UnknownError
        self._charge([one.nbytes for one in arrays])
        # of time spans each may have a unit of its own
        if issubclass(kind, (np.number, np.bool_)) and not issubclass(kind, np.timedelta64):
            self._add(np.array(arrays, kind).tobytes())
        else:
            self._add([(one.dtype.str, one.shape, one.tobytes()) for one in arrays])

    def _tensors(self, tensors: list[torch.Tensor]) -> None:
        try:
            for first in range(0, len(tensors), _MOST_AT_ONCE):  # most lists of samples end here
                self._charge([one.nbytes for one in tensors[first : first + _MOST_AT_ONCE]])
            self._add(*_contents_of_tensors(tensors))
        except RuntimeError as error:  # torch's own word for what has no values to be looked at
            raise _UnknownError from error

    def _charge(self, sizes: list[int]) -> None:
        self._bytes -= sum(sizes)
        if self._bytes < 0 or max(sizes, default=0) > MOST_BYTES:
            raise _UnknownError

    def _add(self, *part: Any) -> None:
        self.parts.append(_dumped(part))


def _contents_of_tensors(tensors: list[torch.Tensor]) -> list[Any]:
    """Dtypes, shapes and values: in one go where they are alike, which takes a tenth of the time.

    Raises:
        RuntimeError: the values of one cannot be looked at.
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
    """Of a dictionary or a set.

    Raises:
        _UnknownError: one is no plain value: what it is found by may be its address.
    """
    if not ({*map(type, keys)} <= _EXACT or all(map(_is_key, keys))):
        raise _UnknownError


def _is_key(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_key, cast("Iterable[Any]", value)))
    return value is None or isinstance(value, (*_PLAIN, np.generic))


def _in_order(elements: Any) -> list[Any]:
    """Those of a set, in an order that goes by what they are."""
    _check_keys(elements)
    kinds = {*map(type, elements)}
    if len(kinds) == 1 and kinds <= {int, str, bytes}:
        return sorted(elements)
    if kinds <= _EXACT:
        return sorted(elements, key=repr)
    return sorted(elements, key=_encoded)
