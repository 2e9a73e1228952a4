"""Files of records: what one says of itself is checked before all of it is read.

A file that is no record is described, as far as its first bytes allow: an empty one, one
that is compressed, a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TypeVar

from workbench.records.base import Record, RecordError, class_of
from workbench.trust import NotAFileError, OpenFile, printable

RECORD = ".safetensors"
"""How the name of a record's file ends."""
LARGEST_BYTES = 4 << 30
"""Of a file that is opened: a record, or an allocator snapshot."""
_LONGEST_HEADER = 100_000_000
"""Bytes; safetensors reads no longer one."""
_LENGTH_BYTES = 8
_LONGEST_NAME = 256
"""Of the first file in an archive that is looked at."""
_PACKED = "-compressed: unpack it first"
_CHECKPOINT = "a torch.save checkpoint"
_OTHERS = {
    b"\x1f\x8b": f"gzip{_PACKED}",
    b"BZh": f"bzip2{_PACKED}",
    b"\xfd7zXZ\0": f"xz{_PACKED}",
    b"\x28\xb5\x2f\xfd": f"zstd{_PACKED}",
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19": _CHECKPOINT,
}
"""By how a file begins, what else it is than a record or a snapshot. The last is the number that
``torch.save`` began with before it wrote zip archives."""

R = TypeVar("R", bound=Record)


def check_size(file: OpenFile, largest: int = LARGEST_BYTES) -> None:
    """Raise `RecordError` for a file that is larger than what is read."""
    size = file.size
    if size > largest:
        raise RecordError(
            f"{file.name} has {size / 2**30:.1f} GiB; files up to {largest / 2**30:g} GiB are read"
        )


def what_else(file: OpenFile) -> str:
    """What a file is that begins as something else, in words; ``""`` where its start does not say.

    A record begins with a length, which may look like anything: ask `begins_as_record` first.
    """
    start = file.first_bytes(30 + _LONGEST_NAME)
    if not start:
        return "empty"
    name = start[30 : 30 + int.from_bytes(start[26:28], "little")]
    if start.startswith(b"PK") and name.endswith(b"/data.pkl"):
        return _CHECKPOINT
    return next((what for first, what in _OTHERS.items() if start.startswith(first)), "")


def suffix_of(name: str, known: Iterable[str], what: str) -> str:
    """The one of the ``known`` endings that a file's name has, the longest of several.

    Args:
        name: of a file that ``what`` is to be saved as.
        known: endings with their dot.
        what: the thing, with its article.

    Raises:
        ValueError: it has none of them.
    """
    valid = list(known)
    found = [suffix for suffix in valid if name.lower().endswith(suffix)]
    if not found:
        suffix = Path(name).suffix
        got = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise ValueError(f"{name!r} has {got}; {what} is saved as {', '.join(valid)}")
    return max(found, key=len)


def begins_as_record(file: OpenFile) -> bool:
    """Whether a file begins with the length of a header that it has room for, and the header."""
    start = file.first_bytes(_LENGTH_BYTES + 1)
    return _has_room(_length(start), file.size) and start.endswith(b"{")


def named_file(path: str | PathLike[str], what: str) -> OpenFile:
    """The file that the user has named, open; the caller closes it.

    Args:
        path: of the file; ``~`` is the home directory.
        what: it is to be read for: ``"types"``.

    Raises:
        FileNotFoundError: there is no such file.
        RecordError: it is a folder, a pipe, a device.
    """
    try:
        return OpenFile.at(Path(path).expanduser())
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no file {str(path)!r} to read {what} from") from None
    except NotAFileError as error:
        found = str(error.strerror).removeprefix("it is ")
        what_to_do = "name a file in it" if found == "a folder" else f"{what} is read from a file"
        raise RecordError(f"{printable(str(path))!r} is {found}: {what_to_do}") from None


def record_at(path: str | PathLike[str], kind: type[R], what: str) -> R:
    """The record of ``kind`` in the file that a person has named.

    Args:
        path: of the file.
        kind: a class of records.
        what: it is to be read for: ``"types"``.

    Raises:
        FileNotFoundError: there is no such file.
        RecordError: as `named_file`, or the file is larger than `LARGEST_BYTES`, or as
            `read_record_file`.
    """
    with named_file(path, what) as file:
        check_size(file)
        return read_record_file(file, kind)


def read_record_file(file: OpenFile, kind: type[R]) -> R:
    """Read the record of ``kind`` in a file.

    Args:
        file: one that `check_size` lets through.
        kind: a class of records; `Record` for all.

    Raises:
        RecordError: as `Record.from_bytes`; a file that does not begin as a record of ``kind`` is
            not read any further.
    """
    size = file.size
    schema = _schema(file, size)
    if schema is None:
        raise RecordError(_no_record(file))
    found = class_of(schema)
    if not issubclass(found, kind):
        raise RecordError(f"expected a {kind.schema} record, got {found.schema}")
    return kind.from_bytes(file.first_bytes(size))


def _length(start: bytes) -> int:
    return int.from_bytes(start[:_LENGTH_BYTES], "little")


def _has_room(length: int, size: int) -> bool:
    return 0 < length <= min(size - _LENGTH_BYTES, _LONGEST_HEADER)


def _no_record(file: OpenFile) -> str:
    other = what_else(file)
    if other:
        return f"it is {other}"
    return f"it begins with {file.first_bytes(_LENGTH_BYTES)!r}, as no whole record does"


def _schema(file: OpenFile, size: int) -> str | None:
    """What the header says that the file holds; None where it begins with none."""
    length = _length(file.first_bytes(_LENGTH_BYTES))
    if not _has_room(length, size):
        return None
    try:
        header = json.loads(file.first_bytes(_LENGTH_BYTES + length)[_LENGTH_BYTES:])
        return str(header["__metadata__"].get("schema"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RecordError("its header names no schema, as in a file of weights") from None
