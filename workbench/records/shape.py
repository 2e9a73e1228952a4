"""What the browser's reader knows about a record: ``extensions/records/src/schema.ts``'s words.

They say the type of every field and its rules (`workbench.records.rules`), so that both
readers refuse the same files.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from workbench.records.base import Record, columns
from workbench.records.check import table_of
from workbench.records.rules import After, Ascending, Index, Least, Length
from workbench.records.twin import packed_base, quoted

ELEMENTS = {"uint8": "U8", "int32": "I32", "int64": "I64", "float32": "F32", "float64": "F64"}
"""Element types by safetensors' names."""


def constant_name(cls: type) -> str:
    """``GraphDiff`` -> ``GRAPH_DIFF``: what describes it in the browser."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()


def shaped(packed: Iterable[type[Record]]) -> set[type]:
    """The dataclasses that packed records are made of."""
    found: set[type] = set()
    pending: list[type] = list(packed)
    while pending:
        hints = typing.get_type_hints(pending.pop(), include_extras=True)
        inner = {part for hint in hints.values() for part in _dataclasses_in(hint)}
        pending += inner - found
        found |= inner
    return found


def shape(cls: type) -> str:
    """The constant that describes the plain fields of one dataclass."""
    hints = typing.get_type_hints(cls, include_extras=True)
    words = [_field(field.name, hints[field.name]) for field in dataclasses.fields(cls)]
    inner = "\n".join(f"  {field}" for field in words)
    return f"const {constant_name(cls)}: Shape = {{\n{inner}\n}};"


def fields(cls: type[Record]) -> str:
    """The constant that describes one packed record; one that adds to another names only that."""
    base = packed_base(cls)
    known = {field.name for field in dataclasses.fields(base)} if base is not None else set[str]()
    hints = typing.get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls) if field.name not in known]
    arrays = columns(cls)
    plain = [_field(name, hints[name]) for name in names if name not in arrays]
    tables: dict[str, list[str]] = {}
    for name in names:
        if name in arrays:
            table = table_of(name, cls.tables)
            rest = name[len(table) + 1 :] if table else name
            tables.setdefault(table, []).append(_field(rest, hints[name]))
    inherited: list[str] = []
    if base is not None:
        plain.insert(0, f"...{constant_name(base)}.plain,")
        inherited.append(f"    ...{constant_name(base)}.columns,")
        for table, added in tables.items():
            added.insert(0, f"...{constant_name(base)}.columns['{table}'],")
    lines = [
        f"const {constant_name(cls)}: RecordFields = {{",
        *_block("plain", plain, "  "),
        "  columns: {",
        *inherited,
        *(line for table, rows in tables.items() for line in _block(table or "''", rows, "    ")),
        "  },",
        "};",
    ]
    return "\n".join(lines)


def _block(name: str, fields: list[str], indent: str) -> list[str]:
    return [f"{indent}{name}: {{", *(f"{indent}  {field}" for field in fields), f"{indent}}},"]


def _field(name: str, hint: Any) -> str:
    hint, rules = _split(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
        name = f"'{name}?'"
    return f"{name}: {_described(hint, rules)},"


def _described(hint: Any, rules: str) -> str:
    if dataclasses.is_dataclass(hint):
        return constant_name(typing.cast(type, hint))
    if typing.get_origin(hint) is tuple:
        more = f", {quoted(rules.strip())}" if rules else ""
        return f"[{_described(typing.get_args(hint)[0], '')}{more}]"
    if typing.get_origin(hint) is Literal:
        return quoted("|".join(typing.get_args(hint)))
    word = ELEMENTS[hint] if isinstance(hint, str) else typing.cast(type, hint).__name__
    return quoted(word + rules)


def _split(hint: Any) -> tuple[Any, str]:
    """A hint without its notes (a column: its element type), and the words of its rules."""
    if typing.get_origin(hint) is not Annotated:
        return hint, ""
    inner, *notes = typing.get_args(hint)
    if isinstance(notes[0], str):
        inner = notes.pop(0)
    return inner, "".join(f" {_word(rule)}" for rule in notes)


def _word(rule: Any) -> str:
    match rule:
        case Index(of=of):
            flags = "?" * rule.none + "+" * rule.end + "<" * rule.earlier
            return f"@{of if isinstance(of, str) else len(of)}{flags}"
        case Least(value):
            return f">={value}"
        case After(field):
            return f">{field}"
        case Ascending():
            return "sorted"
        case Length(factors=factors):
            return "=" + "*".join(map(str, factors))
        case _:
            raise TypeError(f"no words for the rule {rule!r}: add them in {__name__}")


def _dataclasses_in(hint: Any) -> list[type]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return [hint]
    return [found for part in typing.get_args(hint) for found in _dataclasses_in(part)]
