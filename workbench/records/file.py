"""Reads a file that holds a record: what it says of itself is checked before all of it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import BinaryIO, TypeVar

from workbench.records.base import Record, RecordError, class_of

LARGEST_BYTES = 4 << 30
"""Of a file that is opened: a record, or an allocator snapshot."""
_LONGEST_HEADER = 100_000_000
"""Bytes; safetensors reads no longer one."""
_LENGTH_BYTES = 8

R = TypeVar("R", bound=Record)


def check_size(path: Path, largest: int = LARGEST_BYTES) -> None:
    """Raise `RecordError` for a file that is larger than what is read."""
    size = path.stat().st_size
    if size > largest:
        raise RecordError(
            f"{path.name} has {size / 2**30:.1f} GiB; files up to {largest / 2**30:g} GiB are read"
        )


def begins_as_record(path: Path) -> bool:
    """Whether a file begins with the length of a header that it has room for, and the header."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        return _has_room(_length(stream), size) and stream.read(1) == b"{"


def read_record_file(path: Path, kind: type[R]) -> R:
    """Read the record of ``kind`` in a file.

    Args:
        path: a file that `check_size` lets through.
        kind: a class of records; `Record` for all.

    Raises:
        RecordError: as `Record.from_bytes`; a file that does not begin as a record of ``kind`` is
            not read any further.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        found = class_of(_schema(stream, size))
        if not issubclass(found, kind):
            raise RecordError(f"expected a {kind.schema} record, got {found.schema}")
        stream.seek(0)
        return kind.from_bytes(stream.read(size))


def _length(stream: BinaryIO) -> int:
    return int.from_bytes(stream.read(_LENGTH_BYTES), "little")


def _has_room(length: int, size: int) -> bool:
    return 0 < length <= min(size - _LENGTH_BYTES, _LONGEST_HEADER)


def _schema(stream: BinaryIO, size: int) -> str:
    """What the header says that the file holds."""
    length = _length(stream)
    if not _has_room(length, size):
        raise RecordError("not a Workbench record: it does not begin with the length of a header")
    try:
        header = json.loads(stream.read(length))
        return str(header["__metadata__"].get("schema"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RecordError("not a Workbench record: its header names no schema") from None
