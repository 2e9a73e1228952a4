"""Whether what a record says of itself holds: the rules declared with its fields, checked.

Every check is a few passes of numpy over a column, so a record of 200,000 nodes is checked in
milliseconds. The first thing that does not hold is reported in one sentence that names the field,
the row, what came in and what is valid.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from workbench.records.rules import (
    After,
    Ascending,
    Index,
    Least,
    Length,
    Rule,
    element_type,
)

Values = npt.NDArray[Any]
Rules = Sequence[Rule]

EXACT = 2**53 - 1
"""Integers up to here are exact in the browser too, where every number is a double."""


class DamagedError(ValueError):
    """A record that contradicts itself; the message is one sentence."""


@dataclass(frozen=True)
class Fields:
    """What the annotations of one dataclass declare, by name of the field."""

    columns: tuple[str, ...]
    integers: tuple[str, ...]
    """Plain integers."""
    parts: tuple[str, ...]
    """Fields that hold a dataclass, a list of them, or None."""
    rules: Mapping[str, Rules]


@functools.cache
def fields_of(cls: type) -> Fields:
    """What the annotations of ``cls`` declare."""
    kinds: dict[str, list[str]] = {"columns": [], "integers": [], "parts": [], "": []}
    rules: dict[str, Rules] = {}
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        plain, *notes = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        rules[field.name] = [note for note in notes if isinstance(note, Rule)]
        kinds["columns" if element_type(hint) else _kind(plain)].append(field.name)
    return Fields(tuple(kinds["columns"]), tuple(kinds["integers"]), tuple(kinds["parts"]), rules)


def _kind(hint: Any) -> str:
    if hint is int:
        return "integers"
    return "parts" if any(map(dataclasses.is_dataclass, (hint, *typing.get_args(hint)))) else ""


def check_record(record: Any, tables: Sequence[str]) -> None:
    """Check every rule of ``record``; ``tables`` are the beginnings of its columns' names.

    Raises:
        DamagedError: a rule does not hold.
    """
    fields = fields_of(type(record))
    columns = {name: typing.cast(Values, getattr(record, name)) for name in fields.columns}
    sizes = _Sizes(record, columns, tables)
    for name, rules in fields.rules.items():
        for rule in rules:
            if isinstance(rule, Length):
                sizes.check_length(name, rule)
    for name, values in columns.items():
        if values.dtype == np.int64:
            wrong = _outside(values, -EXACT, EXACT)
            _refuse(f"{name}[{{row}}]", values, wrong, "less than 2^53 in size")
    for name in fields.integers:
        if abs(getattr(record, name)) > EXACT:
            raise DamagedError(
                f"{name} is {getattr(record, name)}, expected less than 2^53 in size"
            )
    _check_rows("{name}[{row}]", columns, fields.rules, sizes)
    _check_part("", record, (), sizes)


def table_of(column: str, tables: Iterable[str]) -> str:
    """The table that a column belongs to by the beginning of its name, or an empty string."""
    return max((one for one in tables if column.startswith(f"{one}_")), key=len, default="")


class _Sizes:
    """How many there are of what a name in a rule stands for."""

    def __init__(self, record: Any, columns: Mapping[str, Values], tables: Sequence[str]) -> None:
        self._record = record
        self._of_table: dict[str, int] = {}
        first: dict[str, str] = {}
        for name, values in columns.items():
            table = table_of(name, tables)
            if table:
                first.setdefault(table, name)
                wanted = self._of_table.setdefault(table, len(values))
                if len(values) != wanted:
                    expected = f"expected {wanted}, as many as {first[table]}"
                    raise DamagedError(f"{name} has {len(values)} entries, {expected}")

    def of(self, name: str) -> int:
        if name in self._of_table:
            return self._of_table[name]
        value = getattr(self._record, name)
        return value if isinstance(value, int) else len(value)

    def check_length(self, name: str, rule: Length) -> None:
        wanted = math.prod(self.of(one) if isinstance(one, str) else one for one in rule.factors)
        found = len(getattr(self._record, name))
        if found != wanted:
            product = " x ".join(map(str, rule.factors))
            raise DamagedError(f"{name} has {found} entries, expected {wanted} ({product})")


def _check_rows(
    label: str, columns: Mapping[str, Values], rules: Mapping[str, Rules], sizes: _Sizes
) -> None:
    """Check columns of one table; ``label`` says how a value of them is called."""
    for name, values in columns.items():
        called = label.replace("{name}", name)
        for rule in rules[name]:
            _check_rule(rule, called, values, columns, sizes)


def _check_rule(
    rule: Rule, label: str, values: Values, columns: Mapping[str, Values], sizes: _Sizes
) -> None:
    match rule:
        case Index():
            _check_index(rule, label, values, sizes)
        case Least(value):
            if values.size and values.min() < value:
                _refuse(label, values, values < value, f"at least {value}")
        case After(field):
            other = columns[field]
            _refuse(label, values, (values <= other) & (values >= 0), f"more than its {field}")
        case Ascending():
            _refuse(label, values, np.diff(values, prepend=values[:1]) < 0, "no less than before")
        case _:
            pass  # about the whole, not about its rows


def _check_index(rule: Index, label: str, values: Values, sizes: _Sizes) -> None:
    size = sizes.of(rule.of) if isinstance(rule.of, str) else len(rule.of)
    low, high = -1 if rule.none else 0, size - 1 + rule.end
    of = f", as {rule.of} has {size}" if isinstance(rule.of, str) else ""
    span = f"{low} to {high}" if low < high else str(low) if low == high else "no row at all"
    _refuse(label, values, _outside(values, low, high), f"{span}{of}")
    if rule.earlier:
        _refuse(label, values, values >= np.arange(len(values)), "a row before its own")


def _outside(values: Values, low: int, high: int) -> Values:
    if not values.size or (values.min() >= low and values.max() <= high):
        return _NOWHERE
    return (values < low) | (values > high)


_NOWHERE = np.zeros(0, dtype=np.bool_)


def _refuse(label: str, values: Values, wrong: Values, expected: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DamagedError(f"{label.format(row=row)} is {values[row]}, expected {expected}")


def _check_part(label: str, part: Any, more: Rules, sizes: _Sizes) -> None:
    """The plain integers of one dataclass, and what it is made of; ``more`` holds for them too."""
    fields = fields_of(type(part))
    _check_items(f"{label}{{name}}", [part], more, sizes)
    for name in fields.parts:
        inner = getattr(part, name)
        rules = fields.rules[name]
        if isinstance(inner, tuple):
            items = typing.cast(tuple[Any, ...], inner)
            _check_items(f"{label}{name}[{{row}}].{{name}}", items, rules, sizes)
        elif inner is not None:
            _check_part(f"{label}{name}.", inner, rules, sizes)


def _check_items(label: str, items: Sequence[Any], more: Rules, sizes: _Sizes) -> None:
    """Dataclasses of one kind: their integers are columns that happen to be written by rows."""
    if not items:
        return
    fields = fields_of(type(items[0]))
    rules = {name: (*fields.rules[name], *more) for name in fields.integers}
    columns = {name: _column(items, name) for name, found in rules.items() if found}
    _check_rows(label, columns, rules, sizes)


def _column(items: Iterable[Any], name: str) -> Values:
    return np.array([getattr(item, name) for item in items], dtype=np.int64)
