"""Open a memory file: an allocator snapshot, or a saved record: ``wb.memory("snapshot.pickle")``.

`workbench.allocator.snapshot.decode` reads the file, so that nothing in it can run or take the
machine's memory; the snapshot is replayed (`workbench.memory.files.replayed_snapshot`) and becomes
a record.
"""

from __future__ import annotations

from os import PathLike
from typing import TypeVar

from workbench.allocator.snapshot.decode import read_open
from workbench.memory.files.replayed_snapshot import replayed_record
from workbench.records import MemoryRecord, Record, RecordError
from workbench.records.file import (
    begins_as_record,
    check_size,
    named_file,
    read_record_file,
    what_else,
)
from workbench.trust import OpenFile

R = TypeVar("R", bound=Record)

WRITTEN = "view.save(path) and torch.cuda.memory._dump_snapshot(path) write files that open"
"""What to do about a file that is neither record nor snapshot."""
_SUFFIXES = {".pickle", ".pkl"}
_STARTS = (b"\x80", b"(", b"}")
"""First bytes of a pickle of protocol 2 and later; of a dictionary, which a snapshot is, in
protocols 0 and 1."""


def is_snapshot(file: OpenFile) -> bool:
    """Return whether a file is read as an allocator snapshot: a pickle, by its name or its start.

    A record is not one, whatever its name; the length with which it begins may look like a pickle.
    Nor is a file that begins like something that no snapshot is, such as a checkpoint.
    """
    if begins_as_record(file) or what_else(file):
        return False
    return file.path.suffix in _SUFFIXES or file.first_bytes(1) in _STARTS


def read_snapshot(file: OpenFile, *, certify: bool = False) -> MemoryRecord:
    """Return the record of an allocator snapshot file (``torch.cuda.memory._dump_snapshot``).

    Args:
        file: the snapshot file.
        certify: see `workbench.memory.files.replayed_snapshot.replayed`.

    Raises:
        RecordError: the file is too large, not a snapshot, or requests more than plain data.
    """
    return replayed_record(read_open(file), title=file.name, certify=certify)


def open_file(path: str | PathLike[str], *, certify: bool = False) -> MemoryRecord:
    """Return the record in a file: one saved by ``view.save``, or an allocator snapshot.

    Args:
        path: the file.
        certify: replay the trace of a snapshot, whatever its length. A saved record keeps the
            certificate it was saved with, or none.

    Raises:
        FileNotFoundError: no file at ``path``.
        RecordError: it is a folder, neither of these, larger than `LARGEST_BYTES`, or a saved
            record without the certificate that ``certify`` requires.
    """
    with named_file(path, "a record") as file:
        return record_in(file, MemoryRecord, certify=certify)


def record_in(file: OpenFile, kind: type[R], *, certify: bool = False) -> R | MemoryRecord:
    """Return the record in an open file: one of ``kind``, or that of an allocator snapshot.

    Raises:
        RecordError: as `open_file`.
    """
    if is_snapshot(file):
        return read_snapshot(file, certify=certify)
    check_size(file)
    try:
        record = read_record_file(file, kind)
    except RecordError as error:
        what = "memory record" if kind is MemoryRecord else "record"
        raise RecordError(
            f"{file.name} is no {what} or allocator snapshot: {error}. {WRITTEN}"
        ) from None
    if certify and isinstance(record, MemoryRecord) and record.certificate is None:
        raise RecordError(
            f"{file.name} is a record without a certificate, and a record cannot be replayed: open "
            "the allocator snapshot that it was made of with certify=True, and save that"
        )
    return record
