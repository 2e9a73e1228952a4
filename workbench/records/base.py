"""What a record is, and how one becomes bytes.

A *record* is a frozen dataclass of plain data: numbers, strings, tuples of smaller frozen
dataclasses, and numpy arrays ("columns"). It never holds a tensor, an autograd node or a storage,
so keeping a record cannot keep a user's memory alive.

One byte format serves every reader. The bytes are a safetensors file: every column is stored as an
array under its field name, everything else is JSON in the metadata entry ``record``, and the
metadata entry ``schema`` names the type and its version (``workbench.graph/3``). The same bytes are
sent to the browser, written to disk by ``view.save(path)`` and opened again by ``wb.open(path)``.
JSON has no NaN or infinity, so such floats in plain fields travel as ``null``; in columns they
survive.

What a record says of itself is checked when bytes are read: every number that points into the
record carries a rule in its annotation (`workbench.records.rules`).

Only the standard library, numpy and safetensors' numpy side are used here: the Jupyter server
imports this package and must never load torch.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import reprlib
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from workbench.records.check import DamagedError, check_record
from workbench.records.plain import fields_from_json, to_json
from workbench.records.rules import element_type
from workbench.trust import harmless_json, printable

U8 = Annotated[npt.NDArray[np.uint8], "uint8"]
I32 = Annotated[npt.NDArray[np.int32], "int32"]
I64 = Annotated[npt.NDArray[np.int64], "int64"]
F32 = Annotated[npt.NDArray[np.float32], "float32"]
F64 = Annotated[npt.NDArray[np.float64], "float64"]


class RecordError(ValueError):
    """Bytes that are not a record this version can read."""


_REGISTRY: dict[str, type[Record]] = {}
_PRINTED = ("title", "step", "device", "peak_bytes", "saved_bytes")
"""Plain fields that are printed of a record that has them."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = 80


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Record:
    """Base of every record that is packed to bytes.

    A subclass sets ``schema`` to ``"workbench.<kind>/<version>"`` and is found by it when bytes
    are read back; it is a dataclass with ``repr=False``, so that it is printed on one line.
    """

    schema: ClassVar[str] = ""
    tables: ClassVar[tuple[str, ...]] = ()
    """Columns whose names begin with one of these and ``_`` have one row per thing of that kind
    (``node_type``, ``node_op``: one per node), and so are equally long. The longest such beginning
    counts."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.schema:
            _REGISTRY[cls.schema] = cls

    def __post_init__(self) -> None:
        for name, dtype in columns(type(self)).items():
            object.__setattr__(self, name, _frozen_column(getattr(self, name), dtype))

    def __repr__(self) -> str:
        """What it is of, and how long its tables are: columns would fill the screen."""
        long = columns(type(self))
        names = [name for name in _PRINTED if hasattr(self, name) and name not in long]
        parts = [f"{name}={_SHORT.repr(getattr(self, name))}" for name in names]
        for table in self.tables:
            column = next(name for name in long if name.startswith(f"{table}_"))
            if count := len(getattr(self, column)):
                parts.append(f"num_{table}s={count}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def to_bytes(self) -> bytes:
        """The record as safetensors bytes."""
        from safetensors.numpy import save

        arrays = {name: getattr(self, name) for name in columns(type(self))}
        plain = {
            field.name: to_json(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in arrays
        }
        metadata = {"schema": self.schema, "record": json.dumps(plain, allow_nan=False)}
        return save(arrays, metadata=metadata)

    def save(self, path: str | Path) -> Path:
        """Write the record to ``path`` and return it."""
        target = Path(path).expanduser()
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
        RecordError: the bytes are no safetensors file, carry no known schema, a field is missing or
            of another type, or a column points to what is not there. The message is one sentence
            that names what was found and what is valid.
    """
    from safetensors import SafetensorError

    try:
        metadata, arrays = _unpack(data)
    except (SafetensorError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise RecordError(f"not a Workbench record: {_one_line(error)}") from error
    schema = str(metadata.get("schema"))
    cls = class_of(schema)
    try:
        record = _build(cls, metadata.get("record", ""), arrays)
        check_record(record, cls.tables)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"damaged {schema} record: {_one_line(error)}") from error
    return record


def class_of(schema: str) -> type[Record]:
    """The class of records that is kept under ``schema``; raises `RecordError` for none."""
    found = _REGISTRY.get(schema)
    if found is None:
        known = ", ".join(sorted(_REGISTRY))
        raise RecordError(f"unknown record schema {schema!r}; this version reads: {known}")
    return found


def _unpack(data: bytes) -> tuple[dict[str, str], dict[str, npt.NDArray[Any]]]:
    """The metadata and the arrays of safetensors bytes, whose sizes are checked first."""
    from safetensors.numpy import load

    arrays = load(data)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size].decode("utf-8"))
    return header.get("__metadata__", {}), arrays


def _build(cls: type[Record], text: str, arrays: dict[str, npt.NDArray[Any]]) -> Record:
    """The record, every field of the type that its annotation says."""
    found: dict[str, Any] = {}
    for name, dtype in columns(cls).items():
        array = arrays.get(name)
        if array is None:
            raise DamagedError(f"the column {name} is missing")
        if array.dtype != dtype or array.ndim != 1:
            shape = "x".join(map(str, array.shape))
            raise DamagedError(f"{name} is {array.dtype} [{shape}], expected a column of {dtype}")
        found[name] = array
    given = json.loads(text, parse_constant=_no_constant)
    # anyone may have written a file: its text is made safe to be shown here, and nowhere else
    plain = harmless_json(given)
    if plain != given:
        fields_from_json(cls, given, found)  # an error describes it as it is
    return typing.cast(Record, fields_from_json(cls, plain, found))


def _no_constant(name: str) -> float:
    raise DamagedError(f"its plain fields hold {name}, which JSON does not know")


def _one_line(error: BaseException) -> str:
    text = printable(" ".join(str(error).split()))
    return text or type(error).__name__


@functools.cache
def columns(cls: type[Record]) -> dict[str, np.dtype[Any]]:
    """Field name -> dtype of every array field of a record class."""
    hints = typing.get_type_hints(cls, include_extras=True)
    elements = {field.name: element_type(hints[field.name]) for field in dataclasses.fields(cls)}
    return {name: np.dtype(element) for name, element in elements.items() if element}


def _frozen_column(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    array = np.array(value, dtype=dtype, order="C")
    array.flags.writeable = False
    return array
