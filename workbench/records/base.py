"""What a record is, and how one becomes bytes.

A *record* is a frozen dataclass of plain data: numbers, strings, tuples of smaller frozen
dataclasses, and numpy arrays ("columns"). It never holds a tensor, an autograd node or a storage,
so keeping a record cannot keep a user's memory alive.

One byte format serves every reader. The bytes are a safetensors file: every column is stored as an
array under its field name, everything else is JSON in the metadata entry ``record``, and the
metadata entry ``schema`` names the type and its version (``workbench.graph/2``). The same bytes are
sent to the browser, written to disk by ``view.save(path)`` and opened again by ``wb.open(path)``.
JSON has no NaN or infinity, so such floats in plain fields travel as ``null``; in columns they
survive.

Only the standard library, numpy and safetensors' numpy side are used here: the Jupyter server
imports this package and must never load torch.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

U8 = Annotated[npt.NDArray[np.uint8], "uint8"]
I32 = Annotated[npt.NDArray[np.int32], "int32"]
I64 = Annotated[npt.NDArray[np.int64], "int64"]
F32 = Annotated[npt.NDArray[np.float32], "float32"]
F64 = Annotated[npt.NDArray[np.float64], "float64"]


class RecordError(ValueError):
    """Bytes that are not a record this version can read."""


_REGISTRY: dict[str, type[Record]] = {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """Base of every record that is packed to bytes.

    A subclass sets ``schema`` to ``"workbench.<kind>/<version>"`` and is found by it when bytes
    are read back.
    """

    schema: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.schema:
            _REGISTRY[cls.schema] = cls

    def __post_init__(self) -> None:
        for name, dtype in columns(type(self)).items():
            object.__setattr__(self, name, _frozen_column(getattr(self, name), dtype))

    def to_bytes(self) -> bytes:
        """The record as safetensors bytes."""
        from safetensors.numpy import save

        arrays = {name: getattr(self, name) for name in columns(type(self))}
        plain = {
            field.name: _to_json(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in arrays
        }
        metadata = {"schema": self.schema, "record": json.dumps(plain, allow_nan=False)}
        return save(arrays, metadata=metadata)

    def save(self, path: str | Path) -> Path:
        """Write the record to ``path`` and return it."""
        target = Path(path)
        target.write_bytes(self.to_bytes())
        return target

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a record of this class; raises `RecordError` for any other bytes."""
        record = read_record(data)
        if not isinstance(record, cls):
            raise RecordError(f"expected a {cls.schema} record, got {record.schema}")
        return record


def read_record(data: bytes) -> Record:
    """Read bytes written by `Record.to_bytes`, whatever their type.

    Raises:
        RecordError: the bytes are no safetensors file, carry no known schema, or a field is
            missing. The message names what was found.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        metadata = header.get("__metadata__", {})
        arrays = load(data)
    except (SafetensorError, ValueError, AttributeError) as error:
        raise RecordError(f"not a Workbench record: {error}") from error
    schema = metadata.get("schema")
    cls = _REGISTRY.get(str(schema))
    if cls is None:
        known = ", ".join(sorted(_REGISTRY))
        raise RecordError(f"unknown record schema {schema!r}; this version reads: {known}")
    try:
        plain = json.loads(metadata["record"])
        return typing.cast(Record, _from_json(cls, {**plain, **arrays}))
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"damaged {schema} record: {error}") from error


def columns(cls: type[Record]) -> dict[str, np.dtype[Any]]:
    """Field name -> dtype of every array field of a record class."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found: dict[str, np.dtype[Any]] = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if typing.get_origin(hint) is Annotated:
            found[field.name] = np.dtype(typing.get_args(hint)[1])
    return found


def _frozen_column(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    array = np.array(value, dtype=dtype, order="C")
    array.flags.writeable = False
    return array


def to_json(value: Any) -> Any:
    """A plain dataclass (or any tree of plain data) as JSON-ready data."""
    return _to_json(value)


def _to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in typing.cast(typing.Sequence[Any], value)]
    if isinstance(value, dict):
        items = typing.cast(dict[str, Any], value).items()
        return {str(key): _to_json(item) for key, item in items}
    if value is None or isinstance(value, (str, int, bool)):
        return value
    raise TypeError(f"a record holds plain data only, got {type(value).__name__}")


def _from_json(hint: Any, value: Any) -> Any:
    """Rebuild a value of type ``hint`` from JSON-ready data; unknown keys are ignored."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return value
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        known = {f.name for f in dataclasses.fields(hint) if f.name in value}
        return typing.cast(type, hint)(**{k: _from_json(hints[k], value[k]) for k in known})
    if origin is tuple:
        return tuple(_from_json(typing.get_args(hint)[0], item) for item in value)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        inner = next(arg for arg in typing.get_args(hint) if arg is not type(None))
        return _from_json(inner, value)
    if hint is float and value is None:
        return math.nan
    return value
