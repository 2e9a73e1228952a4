"""Lines of JSON in a file that one process writes and others follow.

A file survives either side: workers continue when their kernel dies, and a kernel that comes back
reads from the first line. A line is complete or not there yet; a reader that finds an incomplete
line waits for the rest. Each line has a seal for its position in this file: without the key, no one
can add a line, leave one out, or repeat one.
"""

from __future__ import annotations

import errno
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from workbench.trust import NotAFileError, Seal, open_regular, through_no_link

Message = dict[str, Any]
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Writer:
    """Appends messages, from any thread; each can be read by others when `write` returns.

    While the disk is full, messages are kept in order, and are written with the next one that fits,
    or by a `flush`.

    Args:
        path: path of the file; its contents are kept.
        seal: seal of its lines; None: that of this process.
    """

    def __init__(self, path: Path, seal: Seal | None = None) -> None:
        self._seal = seal or Seal.of_this_process()
        self._what = path.name
        self._file = open_to_append(path)
        self.count = _whole_lines(path, self._file)
        """Number of lines in the file, written by any process."""
        self._waiting = bytearray()
        """What did not fit on the disk yet; it may begin in the middle of a line."""
        self._lock = threading.Lock()

    def write(self, message: Message) -> None:
        """Append one message.

        Raises:
            OSError: the file cannot be written to, for another reason than a full disk.
        """
        text = json.dumps(message, allow_nan=True, separators=(",", ":")).encode()
        with self._lock:
            self._waiting += self._seal.line(text, self._what, self.count)
            self.count += 1
        self.flush()

    def flush(self) -> None:
        """Write what did not fit before, if there is room now.

        Raises:
            OSError: as `write`.
        """
        with self._lock:
            try:
                while self._waiting:
                    del self._waiting[: self._file.write(self._waiting) or 0]
            except OSError as error:
                if error.errno not in _FULL:
                    raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Follower:
    """Reads messages as they are appended; a file that does not exist yet has none.

    Args:
        path: path of the file.
        seal: seal of its lines; None: that of this process.
    """

    def __init__(self, path: Path, seal: Seal | None = None) -> None:
        self._path = path
        self._seal = seal or Seal.of_this_process()
        self._offset = 0
        self.count = 0
        """Messages read so far."""

    def new(self, most: int | None = None) -> Iterator[Message]:
        """Yield the messages since the last call.

        Args:
            most: stop once `count` has reached this number in all, and leave the rest for later.

        Raises:
            SealError: another user may have written a line.
            NotAFileError: something else is in the place of the file.
        """
        try:
            if self._path.stat().st_size <= self._offset:
                return
            stream = open_regular(self._path)
        except FileNotFoundError:
            return
        with stream:
            stream.seek(self._offset)
            while most is None or self.count < most:
                line = stream.readline()
                if not line.endswith(b"\n"):
                    return
                text = self._seal.opened_line(line, self._path.name, self.count, self._path)
                self._offset += len(line)
                self.count += 1
                yield cast("Message", json.loads(text))


def open_to_append(path: Path) -> io.FileIO:
    """Open a file to append, making it if needed; no link is followed, and no pipe waited for."""
    return io.FileIO(path, "ab", opener=through_no_link)


def _whole_lines(path: Path, file: io.FileIO) -> int:
    """Count the lines; an incomplete line, left by a writer that died, is removed."""
    try:
        with open_regular(path) as stream:
            count = whole = 0
            for line in stream:
                if line.endswith(b"\n"):
                    count, whole = count + 1, whole + len(line)
            if stream.tell() > whole:
                file.truncate(whole)
            return count
    except NotAFileError:  # a device
        return 0
