"""The global generators of Python and of NumPy, saved before every step.

A forward may draw from them (mixup, a random depth), and a step that is undone restores what it
drew. ``random.getstate()`` and ``numpy.random.get_state()`` build hundreds of objects, some 20 us
in every step. Both generators are a Mersenne Twister of 2,500 bytes, so they are read directly from
memory. The position and three words of the state show whether anything was drawn: a draw moves the
position, and a new state or another seed changes all words. Only then is the whole state copied;
copying it always would evict other data from the processor's cache in every step of a training that
draws nothing. Neither library guarantees where the state is stored, so it is compared once with
what the two functions return; if it differs, the functions are called instead.
"""

from __future__ import annotations

import ctypes
import pickle
import random
import struct
from functools import partial
from typing import Any

import numpy as np

_WORDS = 625
"""Number of 32-bit words: 624 of state and the position in them."""
_PYTHON = struct.Struct(f"={_WORDS}I")
_MARK = 16
"""Number of bytes that show whether anything was drawn."""
_GAUSS = struct.Struct("=ixxxxd")
"""Whether a second normal number is pending, and which, as NumPy stores them."""


class HostRandom:
    """States of both generators before a step."""

    def __init__(self) -> None:
        self.find()

    def find(self) -> None:
        """Locate the generators again, as `numpy.random.set_bit_generator` may have changed one."""
        self._python = _Python.found() or _Functions(random.getstate, random.setstate)
        self._numpy = _Numpy.found() or _Functions(
            partial(np.random.get_state, legacy=False), np.random.set_state
        )
        self._read_python, self._read_numpy = self._python.read, self._numpy.read
        self._saved: tuple[Any, Any] | None = None

    def save(self) -> None:
        """Save the current states of both."""
        self._saved = self._read_python(), self._read_numpy()

    def read(self) -> tuple[Any, Any]:
        """Return the current states of both; the value differs after any draw."""
        return self._read_python(), self._read_numpy()

    def moved(self) -> bool:
        """Return whether anything was drawn since `save`."""
        if self._saved is None:
            return False
        pairs = zip((self._python, self._numpy), self._saved, strict=True)
        return not all(generator.is_at(saved) for generator, saved in pairs)

    def restore(self) -> None:
        """Restore what `save` saved, if anything was drawn since."""
        if self._saved is None:
            return
        for generator, saved in zip((self._python, self._numpy), self._saved, strict=True):
            if not generator.is_at(saved):
                generator.write(saved)


class _Functions:
    """A generator accessed through its library's functions."""

    def __init__(self, read: Any, write: Any) -> None:
        self.read, self.write = read, write

    def is_at(self, saved: Any) -> bool:
        return bool(pickle.dumps(self.read()) == pickle.dumps(saved))


class _Python:
    """Python's generator, whose position comes first."""

    def __init__(self) -> None:
        self._generator: Any = random.random.__self__  # pyright: ignore[reportFunctionMemberAccess] - a bound method
        at = id(self._generator) + object.__basicsize__
        self._memory: Any = _memory(at)
        self._mark: Any = _memory(at, _MARK)
        self._known, self._known_mark = b"", b""

    @classmethod
    def found(cls) -> _Python | None:
        """Return the generator, or None if it is not at the expected address."""
        try:
            size: int = type(random.random.__self__).__basicsize__  # pyright: ignore[reportFunctionMemberAccess, reportUnknownMemberType, reportUnknownArgumentType, reportUnknownVariableType] - a bound method
            if size < object.__basicsize__ + 4 * _WORDS:
                return None
            one = cls()
            return one if one._state(one.read()) == random.getstate() else None
        except (AttributeError, TypeError, ValueError):
            return None

    def read(self) -> tuple[bytes, float | None]:
        if (mark := self._mark.raw) != self._known_mark:
            self._known, self._known_mark = self._memory.raw, mark
        return self._known, self._generator.gauss_next

    def is_at(self, saved: tuple[bytes, float | None]) -> bool:
        return self.read() == saved

    def write(self, saved: tuple[bytes, float | None]) -> None:
        random.setstate(self._state(saved))

    @staticmethod
    def _state(saved: tuple[bytes, float | None]) -> tuple[int, tuple[int, ...], float | None]:
        at, *words = _PYTHON.unpack(saved[0])
        return 3, (*words, at), saved[1]


class _Numpy:
    """NumPy's generator, whose position comes last; a pending normal number is stored elsewhere."""

    def __init__(self, offset: int) -> None:
        self._generator: Any = np.random.rand.__self__
        self._bits: Any = self._generator._bit_generator  # kept alive: its memory is read
        at: int = self._bits.ctypes.state_address
        self._memory: Any = _memory(at)
        self._mark: Any = _memory(at + 4 * _WORDS - _MARK, _MARK)
        self._known, self._known_mark = b"", b""
        self._gauss: Any = _memory(id(self._generator) + offset, _GAUSS.size)

    @classmethod
    def found(cls) -> _Numpy | None:
        """Return the generator; None if it is of another kind or not at the expected address."""
        try:
            kind: Any = np.random.get_state(legacy=False)
            if kind["bit_generator"] != "MT19937":
                return None
            offset = _gauss_offset()
            one = None if offset is None else cls(offset)
            return one if one and _same(one._state(one.read()), np.random.get_state()) else None
        except (AttributeError, TypeError, ValueError):
            return None

    def read(self) -> tuple[bytes, bytes]:
        if (mark := self._mark.raw) != self._known_mark:
            self._known, self._known_mark = self._memory.raw, mark
        return self._known, self._gauss.raw

    def is_at(self, saved: tuple[bytes, bytes]) -> bool:
        return self.read() == saved

    def write(self, saved: tuple[bytes, bytes]) -> None:
        np.random.set_state(self._state(saved))

    @staticmethod
    def _state(saved: tuple[bytes, bytes]) -> Any:
        words = np.frombuffer(saved[0], np.uint32)
        has_gauss, gauss = _GAUSS.unpack(saved[1])
        return "MT19937", words[:-1], int(words[-1]), has_gauss, gauss if has_gauss else 0.0


def _gauss_offset() -> int | None:
    """Return the offset of the pending normal number in a `numpy.random.RandomState`.

    It has to be the same in two of them.
    """
    places: list[int] = []
    for seed in (0, 1):
        one = np.random.RandomState(seed)
        one.standard_normal()
        wanted = _GAUSS.pack(1, one.get_state()[4])  # pyright: ignore[reportUnknownMemberType, reportArgumentType, reportCallIssue] - numpy's stubs leave the tuple open
        size: int = type(one).__basicsize__
        places.append(_memory(id(one), size).raw.find(wanted))
    return places[0] if places[0] > 0 and places[0] == places[1] else None


def _same(one: Any, other: Any) -> bool:
    gauss = one[3] == other[3] and (not one[3] or one[4] == other[4])
    return gauss and one[2] == other[2] and bool(np.array_equal(one[1], other[1]))


def _memory(address: int, size: int = 4 * _WORDS) -> Any:
    return (ctypes.c_char * size).from_address(address)
