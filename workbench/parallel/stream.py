"""Lines of JSON in a file that one process writes and others follow.

A file survives either side: a kernel that dies leaves workers that go on, and one that comes back
reads from the first line. A line is whole or not there yet; a reader that comes upon half a line
waits for the rest.
"""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

Message = dict[str, Any]
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Writer:
    """Appends messages, from any thread; each is on its way to others when `write` returns.

    While the disk is full they are kept, in their order, and go with the next one that finds room,
    or with a `flush`.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._waiting = bytearray()
        """What found no room yet; it may begin in the middle of a line."""
        self._lock = threading.Lock()

    def write(self, message: Message) -> None:
        """Append one message.

        Raises:
            OSError: the file cannot be written to, for another reason than a full disk.
        """
        line = json.dumps(message, allow_nan=True, separators=(",", ":")) + "\n"
        with self._lock:
            self._waiting += line.encode()
        self.flush()

    def flush(self) -> None:
        """Write what found no room before, if there is some now.

        Raises:
            OSError: as `write`.
        """
        with self._lock:
            try:
                while self._waiting:
                    del self._waiting[: self._file.write(self._waiting)]
            except OSError as error:
                if error.errno not in _FULL:
                    raise

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class Follower:
    """Reads messages as they are appended; a file that is not there yet has none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.count = 0
        """Messages read so far."""

    def new(self, most: int | None = None) -> Iterator[Message]:
        """Messages since the last time.

        Args:
            most: stop once `count` is so many in all, and leave the rest for later.
        """
        try:
            if self._path.stat().st_size <= self._offset:
                return
            stream = self._path.open("rb")
        except FileNotFoundError:
            return
        with stream:
            stream.seek(self._offset)
            while most is None or self.count < most:
                line = stream.readline()
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                self.count += 1
                yield cast("Message", json.loads(line))
