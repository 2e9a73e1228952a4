"""A TensorBoard event file that survives a disk that fails and recovers.

A reader stops at the first damaged record and never reads what follows, so a record that was cut
short by a full disk would hide everything written later. After a failed write the file is truncated
to its last complete record, which needs no space; if even that fails, a new file is begun, and
TensorBoard reads it after the old one. The same is done if the file is removed: what is written to
it would be lost, and no write would fail.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import socket
import time
from pathlib import Path
from typing import BinaryIO

from workbench.metrics.tensorboard_messages import record, version_event
from workbench.trust import through_no_link

PREFIX = "events.out.tfevents."
"""How names of event files begin; the time in seconds follows."""
_SKEW_S = 60
"""A later time in a name than this many seconds from now is nobody's clock."""
_serial = itertools.count()


class EventFile:
    """Appends records to ``events.out.tfevents.*`` in one folder. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path: Path | None = None
        """The current file; None before the first record."""
        self.removed = 0
        """Number of its files that have been removed by others."""
        self._file: BinaryIO | None = None
        self._whole = 0

    def append(self, records: bytes) -> None:
        """Write whole records, or none of them.

        Raises:
            OSError: the write failed; the file contains what it contained before.
        """
        file = self._open()
        try:
            _write_all(file, records)
        except OSError:
            self._cut_back(file)
            raise
        self._whole += len(records)

    def close(self) -> None:
        """Close the file; a later `append` continues in it."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self) -> BinaryIO:
        if self._file is not None and os.fstat(self._file.fileno()).st_nlink == 0:
            self.close()
        if self._file is None:
            self._file = self._reopened() or self._begun()
        return self._file

    def _reopened(self) -> BinaryIO | None:
        if self.path is None:
            return None
        try:
            file = io.FileIO(self.path, "r+b", opener=through_no_link)
        except FileNotFoundError:
            self.removed, self.path = self.removed + 1, None
            return None
        file.seek(self._whole)
        return file

    def _begun(self) -> BinaryIO:
        self.folder.mkdir(parents=True, exist_ok=True)
        stamp, host = self._stamp(), socket.gethostname()
        name = f"{PREFIX}{stamp:010d}.{host}.{os.getpid()}.{next(_serial):04d}"
        path = self.folder / name
        # unbuffered: what was written is visible to the reader of a live run
        file = path.open("xb", buffering=0)
        first = record(version_event(time.time()))
        try:
            _write_all(file, first)
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        self.path, self._whole = path, len(first)
        return file

    def _stamp(self) -> int:
        """The time in seconds; readers go by it, so it is not before that of any file here."""
        names = (path.name.removeprefix(PREFIX).partition(".")[0] for path in self.folder.iterdir())
        latest = max((int(one) for one in names if one.isdecimal()), default=0)
        now = int(time.time())
        return latest if now < latest < now + _SKEW_S else now

    def _cut_back(self, file: BinaryIO) -> None:
        try:
            file.truncate(self._whole)
            file.seek(self._whole)
        except OSError:
            self._file = self.path = None  # its end is unknown: continue in a new file
            with contextlib.suppress(OSError):
                file.close()


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write all of ``data``: an unbuffered write may be partial, for example on a full disk."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
