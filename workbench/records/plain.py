"""Plain data to JSON and back: the fields of a record that are no columns.

JSON has no NaN or infinity, so such floats travel as ``null``. What comes back is compared with
the annotations, value by value: a field that is missing, or of another type, is named in one
sentence. Keys that no field is called are ignored, so that an older version reads a newer file.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal

from workbench.records.check import EXACT, DamagedError
from workbench.records.rules import element_type

Reader = Callable[[Any], Any]


class MisfitError(Exception):
    """A value that does not fit its annotation, and the way to it from the outside in."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.way: list[str] = []

    def sentence(self) -> str:
        """``modules[3].parent is 'x', expected a whole number``."""
        return f"{''.join(reversed(self.way)).removeprefix('.')} {self}"


def to_json(value: Any) -> Any:
    """A plain dataclass (or any tree of plain data) as JSON-ready data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if value.isascii() else _whole(value)
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in typing.cast(typing.Sequence[Any], value)]
    if isinstance(value, dict):
        items = typing.cast(dict[str, Any], value).items()
        return {str(key): to_json(item) for key, item in items}
    if value is None or isinstance(value, (int, bool)):
        return value
    raise TypeError(f"a record holds plain data only, got {type(value).__name__}")


def _whole(text: str) -> str:
    """``text`` as UTF-8 can hold it: half a pair (of a file name that is no text) is replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def fields_from_json(cls: type, value: Any, given: dict[str, Any]) -> Any:
    """A dataclass of which the fields ``given`` need not be in the JSON.

    Raises:
        DamagedError: something is missing or of another type; the sentence says what and where.
    """
    try:
        return _read_fields(cls, value, given)
    except MisfitError as misfit:
        raise DamagedError(misfit.sentence()) from None


@functools.cache
def _reader(hint: Any) -> Reader:
    """What reads a value of type ``hint``; made once, as a record may hold thousands."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _reader(arguments[0])
    if dataclasses.is_dataclass(hint):
        return functools.partial(_read_fields, typing.cast(type, hint), given={})
    if origin is tuple:
        return functools.partial(_read_list, _reader(arguments[0]))
    if origin is Literal:
        return functools.partial(_read_choice, arguments)
    if origin in (typing.Union, types.UnionType):
        inner = _reader(next(one for one in arguments if one is not type(None)))
        return lambda value: None if value is None else inner(value)
    return _SCALARS[hint]


@functools.cache
def _field_readers(cls: type) -> dict[str, Reader | None]:
    """Field -> its reader; None for a column, which does not travel as JSON."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        field.name: None if element_type(hints[field.name]) else _reader(hints[field.name])
        for field in dataclasses.fields(cls)
    }


def _read_fields(cls: type, value: Any, given: dict[str, Any]) -> Any:
    if type(value) is not dict:
        raise MisfitError(f"is {_shown(value)}, expected an object")
    found = dict(given)
    for name, read in _field_readers(cls).items():
        if read is None:
            continue
        if name not in value:
            misfit = MisfitError("is missing")
            misfit.way.append(f".{name}")
            raise misfit
        try:
            found[name] = read(value[name])
        except MisfitError as misfit:
            misfit.way.append(f".{name}")
            raise
    return cls(**found)


def _read_list(read: Reader, value: Any) -> tuple[Any, ...]:
    if type(value) is not list:
        raise MisfitError(f"is {_shown(value)}, expected a list")
    found: list[Any] = []
    items = typing.cast(list[Any], value)
    try:
        for item in items:
            found.append(read(item))  # noqa: PERF401 - its length is the row that does not fit
    except MisfitError as misfit:
        misfit.way.append(f"[{len(found)}]")
        raise
    return tuple(found)


def _read_choice(choices: tuple[str, ...], value: Any) -> str:
    if value in choices:
        return value
    raise MisfitError(f"is {_shown(value)}, expected one of {', '.join(choices)}")


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise MisfitError(f"is {_shown(value)}, expected text")
    if not value.isascii() and _whole(value) != value:
        raise MisfitError("holds half of a character, which cannot be written as UTF-8")
    return value


def _read_integer(value: Any) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not -EXACT <= value <= EXACT:
        raise MisfitError(f"is {_shown(value)}, expected a whole number below 2^53")
    return value


def _read_float(value: Any) -> float:
    if value is None:
        return math.nan
    if type(value) not in (int, float) or not abs(value) <= _LARGEST:
        raise MisfitError(f"is {_shown(value)}, expected a number")
    return float(value)


def _read_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise MisfitError(f"is {_shown(value)}, expected true or false")
    return value


_LARGEST = 1.7976931348623157e308
_SCALARS: dict[Any, Reader] = {
    str: _read_text,
    int: _read_integer,
    float: _read_float,
    bool: _read_bool,
}


def _shown(value: Any) -> str:
    """A value in an error: short, on one line."""
    names = {dict: "an object", list: "a list", type(None): "null", bool: str(value).lower()}
    found = names.get(type(value))
    if found is not None:
        return found
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
