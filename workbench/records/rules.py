"""What the numbers of a record may be, declared with the field that holds them.

A record points into itself: ``node_type`` holds rows of ``strings``, ``edge_from`` rows of the
nodes. A file may have been cut short, edited or made up, so what a field points to is part of its
annotation, ``node_type: Annotated[I32, Index("strings")]``, and is checked wherever bytes become a
record: in Python by `workbench.records.check`, in the browser by the twin of that file,
``extensions/records/src/check.ts``, which has the same rules.

A *name* in a rule is that of a table of the record (``node``: all columns called ``node_...``), of
a list or a column (its length), or of a whole number (itself).
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Annotated, Any


def element_type(hint: Any) -> str:
    """``int32`` for the annotation of a column of them, ``""`` for that of any other field."""
    notes = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return notes[0] if notes and isinstance(notes[0], str) else ""


class Rule:
    """Something that holds for every row of a column, or for every integer of a list."""


@dataclass(frozen=True)
class Index(Rule):
    """Rows of a table or a list. On a list of dataclasses: for every plain integer in them."""

    of: str | tuple[str, ...]
    """The name of what it points to, or the tuple of names itself."""
    none: bool = False
    """Whether -1 stands for "there is none"."""
    end: bool = False
    """Whether it may point one past the last row, as the end of a range does."""
    earlier: bool = False
    """Whether it points to rows before its own only, which makes a circle impossible."""


@dataclass(frozen=True)
class Least(Rule):
    """No value is smaller."""

    value: int


@dataclass(frozen=True)
class After(Rule):
    """Every value is larger than that of another field in the same row; -1 ("none") is exempt."""

    field: str


@dataclass(frozen=True)
class Ascending(Rule):
    """No value is smaller than the one before."""


@dataclass(frozen=True, init=False)
class Length(Rule):
    """A column or a list has as many entries as the product of what is named."""

    factors: tuple[str | int, ...]

    def __init__(self, *factors: str | int) -> None:
        object.__setattr__(self, "factors", factors)
