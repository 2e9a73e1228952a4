"""Numbers and words from a snapshot's dictionaries, each of the type it must have.

A snapshot is a few long lists of dictionaries with the same keys. Reading them entry by entry costs
several microseconds each; reading them key by key, with loops that run inside the interpreter
(``map``, ``itemgetter``, ``array``), costs a tenth of that. ``array`` also does the checking: it
accepts whole numbers of 64 bits and nothing else, and only after it has refused something is the
offending value searched for, to name it.

Nothing here compares, hashes or prints a value before its type is known: a tuple nested a million
deep ends the process that hashes it. Standard library only.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

Row = dict[str, Any]
_LONGEST_TEXT, _MOST_SETTINGS = 4096, 256


class RefusedError(Exception):
    """It is not a snapshot, or contains what no snapshot does; the message is half a sentence."""


def rows_of(value: Any, what: str) -> list[Row]:
    """Return ``value`` if it is a list of dictionaries.

    Raises:
        RefusedError: it is something else.
    """
    if type(value) is not list:
        raise RefusedError(f"its schema is not one we know: its {what} list is {_kinds([value])}")
    if set(map(type, value)) - {dict}:
        raise RefusedError(f"its schema is not one we know: a {what} is {_kinds(value, dict)}")
    return value


def numbers(rows: Sequence[Row], key: str, what: str, default: int | None = None) -> array[int]:
    """Return ``key`` of each row, as signed 64-bit numbers.

    Raises:
        RefusedError: a row lacks it and there is no default, or it is not such a number.
    """
    try:
        values = list(map(itemgetter(key), rows))
    except KeyError:
        if default is None:
            raise missing(key, what) from None
        values = [row.get(key, default) for row in rows]
    return signed(values, key, what)


def values_of(rows: Sequence[Row], key: str) -> list[Any]:
    """Return ``key`` of each row, of any type; None if a row lacks it."""
    try:
        return list(map(itemgetter(key), rows))
    except KeyError:
        return [row.get(key) for row in rows]


def signed(values: list[Any], key: str, what: str) -> array[int]:
    """Return whole numbers as signed 64 bits; those of the upper unsigned half are wrapped.

    Raises:
        RefusedError: a value is not a number of 64 bits.
    """
    try:
        return array("q", values)
    except (TypeError, OverflowError):
        if set(map(type, values)) - {int, bool}:
            kinds = _kinds(values, int, bool)
            raise RefusedError(
                f"its schema is not one we know: the {key!r} of a {what} is {kinds}"
            ) from None
    try:
        upper = range(1 << 63, 1 << 64)
        return array("q", [value - (1 << 64) if value in upper else value for value in values])
    except OverflowError:
        raise RefusedError(f"the {key!r} of a {what} has more than 64 bits") from None


def counts(values: array[int], key: str, what: str) -> array[int]:
    """Return ``values`` if none is negative (or became so because it is larger than 2**63).

    Raises:
        RefusedError: one is.
    """
    if values and min(values) < 0:
        raise RefusedError(f"the {key!r} of a {what} is negative or has more than 63 bits")
    return values


def missing(key: str, what: str) -> RefusedError:
    """Return the error to raise if a row lacks ``key``."""
    return RefusedError(f"its schema is not one we know: a {what} has no {key!r}")


def text(value: Any) -> str:
    """Return ``value`` as text that any encoding can write; empty if it is not a string."""
    if type(value) is not str:
        return ""
    value = value[:_LONGEST_TEXT]
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def settings_of(value: Any, depth: int = 2) -> dict[str, Any]:
    """Keep strings, numbers and one level of dictionaries of them from allocator settings."""
    if type(value) is not dict:
        return {}
    kept: dict[str, Any] = {}
    for key, item in list(value.items())[:_MOST_SETTINGS]:
        if type(key) is not str:
            continue
        if type(item) is dict and depth > 1:
            kept[text(key)] = settings_of(item, depth - 1)
        elif type(item) is str:
            kept[text(key)] = text(item)
        elif _is_small_number(item):
            kept[text(key)] = item
    return kept


def _is_small_number(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return type(value) in (int, bool) and -(1 << 63) <= value < 1 << 64


def _kinds(values: list[Any], *but: type) -> str:
    """Return ``of type list or str``: the types among ``values``, except some."""
    return "of type " + " or ".join(sorted(kind.__name__ for kind in {*map(type, values)} - {*but}))
