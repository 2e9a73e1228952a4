"""The TypeScript twin of one dataclass: its interface, its types, its comments.

Field names stay as they are, a docstring becomes the comment above its twin. Integer columns of 64
bits become ``Float64Array`` in the browser, because arithmetic on ``BigInt64Array`` is slow and
every quantity kept here (bytes, microseconds, device addresses) is below 2**53, which a double
holds exactly.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
import types
import typing
from typing import Annotated, Any, Literal

from workbench.records import panel
from workbench.records.base import Record

ALIASES = ("Status", "BadgeKind", "CaptureKind")
"""Literal unions of `workbench.records.panel` that are named in the browser too."""

ARRAYS = {
    "uint8": "Uint8Array",
    "int32": "Int32Array",
    "int64": "Float64Array",
    "float32": "Float32Array",
    "float64": "Float64Array",
}

_PLAIN = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


def typescript_type(hint: Any) -> str:
    """The TypeScript type of one field's annotation.

    Raises:
        TypeError: the annotation has no twin; the message names it.
    """
    alias = next((name for name in ALIASES if hint == getattr(panel, name)), None)
    if alias is not None:
        return alias
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is Annotated:
        note = arguments[1]
        return ARRAYS[note] if isinstance(note, str) else typescript_type(arguments[0])
    if origin is Literal:
        return " | ".join(quoted(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(typescript_type(argument) for argument in arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return f"ReadonlyArray<{typescript_type(arguments[0])}>"
    if dataclasses.is_dataclass(hint):
        return typing.cast(type, hint).__name__
    if hint in _PLAIN:
        return _PLAIN[hint]
    raise TypeError(f"no TypeScript twin for the annotation {hint!r}: add one in {__name__}")


def interface(cls: type) -> str:
    """The interface of one dataclass; a record that adds columns to another one extends it."""
    hints = typing.get_type_hints(cls, include_extras=True)
    notes = _field_notes(cls)
    base = packed_base(cls)
    extends = f" extends Omit<{base.__name__}, 'schema'>" if base is not None else ""
    lines = [
        comment(inspect.getdoc(cls) or "", ""),
        f"export interface {cls.__name__}{extends} {{",
    ]
    if issubclass(cls, Record):
        lines.append(f"  readonly schema: {quoted(cls.schema)};")
    inherited = (
        {field.name for field in dataclasses.fields(base)} if base is not None else set[str]()
    )
    for field in dataclasses.fields(cls):
        if field.name in inherited:
            continue
        if field.name in notes:
            lines.append(comment(notes[field.name], "  "))
        lines.append(f"  readonly {field.name}: {typescript_type(hints[field.name])};")
    lines.append("}")
    return "\n".join(lines)


def packed_base(cls: type) -> type[Record] | None:
    """The record that ``cls`` adds columns to, if there is one."""
    base = cls.__base__
    return base if base is not None and issubclass(base, Record) and base is not Record else None


def _field_notes(cls: type) -> dict[str, str]:
    """The string under each field of a dataclass, which Python itself forgets."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = typing.cast(ast.ClassDef, tree.body[0]).body
    notes: dict[str, str] = {}
    for field, after in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            notes[field.target.id] = inspect.cleandoc(after.value.value)
    return notes


def quoted(value: str) -> str:
    """A string literal of TypeScript."""
    return "'" + json.dumps(value)[1:-1].replace("'", "\\'") + "'"


def comment(text: str, indent: str) -> str:
    """A documentation comment of one or more lines."""
    lines = text.replace("*/", "* /").splitlines()
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */"
    inner = "\n".join(f"{indent} * {line}".rstrip() for line in lines)
    return f"{indent}/**\n{inner}\n{indent} */"
