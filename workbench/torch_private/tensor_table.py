"""The table of the tensors of a checkpoint: where in its files each of them lies, in plain values.

`workbench.torch_private.tensor_files` writes and reads the tensors, for which it imports
`torch.distributed.checkpoint`. That takes half as long as importing torch; this file does without.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch

_FILE = re.compile(r"__\d{1,9}_\d{1,9}\.distcp")


class TableError(ValueError):
    """The values are no table of tensors."""


@dataclass(frozen=True)
class Chunk:
    """A part of a tensor, in one file."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    """First byte in the file."""
    length: int
    """Number of bytes in the file."""


@dataclass(frozen=True)
class Entry:
    """A tensor of a checkpoint."""

    dtype: torch.dtype
    size: tuple[int, ...]
    chunks: tuple[Chunk, ...]


Table = dict[str, Entry]
"""Name -> tensor."""


def to_values(table: Table) -> dict[str, Any]:
    """Return a table in values of JSON."""
    return {
        name: [
            str(entry.dtype).removeprefix("torch."),
            list(entry.size),
            [[[*c.offsets], [*c.sizes], c.file, c.start, c.length] for c in entry.chunks],
        ]
        for name, entry in table.items()
    }


def from_values(values: Any) -> Table:
    """Return the table of which these are `to_values`.

    Raises:
        TableError: they are none, or name a file elsewhere.
    """
    try:
        return {str(name): _entry(name, *one) for name, one in values.items()}
    except TableError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise TableError(f"it is damaged: {type(error).__name__}: {str(error)[:200]}") from error


def _entry(name: str, dtype: str, size: list[Any], chunks: list[Any]) -> Entry:
    kind = vars(torch).get(str(dtype))
    if not isinstance(kind, torch.dtype):
        raise TableError(f"{name[:200]} has no type")
    parts = [
        Chunk(_counts(offsets), _counts(sizes), _file(file), *_counts((start, length)))
        for offsets, sizes, file, start, length in chunks
    ]
    found = Entry(kind, _counts(size), tuple(parts))
    if sum(math.prod(one.sizes) for one in parts) != math.prod(found.size):
        raise TableError(f"{name[:200]} is not all there")
    if any(one.length < math.prod(one.sizes) * kind.itemsize for one in parts):
        raise TableError(f"{name[:200]} has fewer bytes than its shape needs")
    return found


def _counts(numbers: Any) -> tuple[int, ...]:
    if any(type(number) is not int or not 0 <= number < 1 << 62 for number in numbers):
        raise TableError(f"{str(numbers)[:200]} are no counts")
    return tuple(numbers)


def _file(name: Any) -> str:
    if type(name) is not str or not _FILE.fullmatch(name):
        raise TableError(f"{str(name)[:200]!r} is no file of a checkpoint")
    return name


def extent(table: Table) -> dict[str, int]:
    """Return for each file of tensors how many bytes the table says it has."""
    ends: dict[str, int] = {}
    for entry in table.values():
        for one in entry.chunks:
            ends[one.file] = max(one.start + one.length, ends.get(one.file, 0))
    return ends
