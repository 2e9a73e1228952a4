"""Values as JSON and tensors: they come back as they were, and reading them runs nothing.

Numbers, texts, bytes, tensors, arrays of NumPy, and lists, tuples, dictionaries, sets and queues of
them are plain. In JSON a value that JSON does not know is an object with its kind under ``$``; a
tensor is a number, and is stored with the other tensors of a checkpoint.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch

_MOST_BITS = 64
"""Larger integers are written in hexadecimal: Python limits how many decimal digits it reads."""
_KIND, _VALUE = "$", "v"
_SEQUENCES: dict[type, str] = {
    tuple: "tuple", set: "set", frozenset: "frozenset", torch.Size: "size",
}  # fmt: skip
_MAPPINGS: dict[type, str] = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}


class NotPlainError(TypeError):
    """The value holds an object that can only be pickled."""


class DamagedError(ValueError):
    """The JSON was not written by `Writer`."""


class Writer:
    """Encodes values, and collects their tensors."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []

    def split(self, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the entries that are plain, encoded, and those that are not."""
        plain: dict[str, Any] = {}
        other: dict[str, Any] = {}
        for name, value in values.items():
            count = len(self.tensors)
            try:
                plain[name] = self.encode(value)
            except (NotPlainError, RecursionError):
                del self.tensors[count:]
                other[name] = value
        return plain, other

    def encode(self, value: Any) -> Any:
        """Return ``value`` as JSON.

        Raises:
            NotPlainError: it holds an object of another kind.
        """
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            small = value.bit_length() <= _MOST_BITS
            return value if small else _marked("int", hex(value))
        if kind is float:
            return value if math.isfinite(value) else _marked("float", str(value))
        if kind is list:
            return [self.encode(item) for item in value]
        if kind in _SEQUENCES:
            return _marked(_SEQUENCES[kind], [self.encode(item) for item in value])
        if kind in _MAPPINGS:
            return self._mapping(kind, value)
        if kind is deque:
            items = [self.encode(item) for item in value]
            return _marked("deque", [value.maxlen, items])
        return self._other(kind, value)

    def _mapping(self, kind: type, value: dict[Any, Any]) -> Any:
        if kind is dict and all(type(key) is str for key in value) and _KIND not in value:
            return {key: self.encode(item) for key, item in value.items()}
        pairs = [[self.encode(key), self.encode(item)] for key, item in value.items()]
        return _marked(_MAPPINGS[kind], pairs)

    def _other(self, kind: type, value: Any) -> Any:
        if kind is bytes:
            return _marked("bytes", base64.b64encode(value).decode())
        if kind is complex:
            return _marked("complex", [self.encode(value.real), self.encode(value.imag)])
        if kind in (torch.dtype, torch.device):
            return _marked(kind.__name__, str(value).removeprefix("torch."))
        if kind is torch.Tensor:
            return self._tensor(value.detach())
        if isinstance(value, np.generic | np.ndarray):
            return self._array(np.asarray(value), is_number=isinstance(value, np.generic))
        raise NotPlainError(f"a {kind.__module__}.{kind.__qualname__}")

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.layout is torch.sparse_coo:
            is_whole = tensor.is_coalesced()
            indices, values = tensor._indices(), tensor._values()
            parts = [self._tensor(indices), self._tensor(values), list(tensor.shape), is_whole]
            return _marked("sparse", parts)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            raise NotPlainError(f"a tensor in the layout {tensor.layout}")
        self.tensors.append(tensor)
        return _marked("tensor", len(self.tensors) - 1)

    def _array(self, array: np.ndarray[Any, Any], *, is_number: bool) -> Any:
        if array.dtype.hasobject or array.dtype.names is not None or array.dtype.kind in "USMmV":
            raise NotPlainError(f"an array of {array.dtype}")
        data = (
            torch.frombuffer(bytearray(array.tobytes()), dtype=torch.uint8) if array.size else None
        )
        parts = [array.dtype.str, list(array.shape), self.encode(data)]
        return _marked("number" if is_number else "array", parts)


class Reader:
    """Decodes what a `Writer` has encoded.

    Args:
        tensor: returns the tensor of a number.
    """

    def __init__(self, tensor: Callable[[int], torch.Tensor]) -> None:
        self._tensor = tensor

    def decode(self, value: Any) -> Any:
        """Return the value.

        Raises:
            DamagedError: it was not encoded by a `Writer`.
        """
        try:
            return self._decoded(value)
        except DamagedError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
            raise DamagedError(f"{type(error).__name__}: {error}") from error

    def _decoded(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._decoded(item) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        found = cast("dict[str, Any]", value)
        if _KIND not in found:
            return {key: self._decoded(item) for key, item in found.items()}
        return self._marked(found[_KIND], found[_VALUE])

    def _marked(self, kind: str, value: Any) -> Any:
        if kind in _SIMPLE:
            return _SIMPLE[kind](value)
        for cls, name in _SEQUENCES.items():
            if name == kind:
                return cls(self._decoded(item) for item in value)
        for cls, name in _MAPPINGS.items():
            if name == kind:
                return cls({self._decoded(key): self._decoded(item) for key, item in value})
        return self._of_parts(kind, value)

    def _of_parts(self, kind: str, value: Any) -> Any:
        if kind == "complex":
            return complex(*map(self._decoded, value))
        if kind == "deque":
            return deque(map(self._decoded, value[1]), maxlen=value[0])
        if kind == "tensor":
            return self._tensor(int(value))
        if kind == "sparse":
            indices, values, shape, is_whole = value
            parts = self._decoded(indices), self._decoded(values)
            return torch.sparse_coo_tensor(*parts, shape, is_coalesced=is_whole)
        if kind in ("array", "number"):
            return self._array(value, is_number=kind == "number")
        raise DamagedError(f"unknown kind {str(kind)[:80]!r}")

    def _array(self, value: Any, *, is_number: bool) -> Any:
        dtype, shape, data = value
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise DamagedError("an array of objects")
        stored = self._decoded(data)
        content = b"" if stored is None else stored.numpy().tobytes()
        array = np.frombuffer(content, kind).reshape(shape).copy()
        return array[()] if is_number else array


def _marked(kind: str, value: Any) -> dict[str, Any]:
    return {_KIND: kind, _VALUE: value}


def _dtype(name: str) -> torch.dtype:
    found = vars(torch).get(name)
    if not isinstance(found, torch.dtype):
        raise DamagedError(f"unknown type {name[:80]!r}")
    return found


_SIMPLE: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "float": float,
    "bytes": base64.b64decode,
    "dtype": _dtype,
    "device": torch.device,
}
