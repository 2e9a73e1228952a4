"""Log of what a long-lived child process prints, in a file of limited size."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import IO

from workbench.trust import through_no_link

_MOST_BYTES = 1_000_000
_TAIL_BYTES = 4096
_TAIL_LINES = 8


class ProcessLog:
    """Reads the output of a process to its end, and keeps the last part of it.

    Args:
        popen: the process; its stdout is a pipe, which must have no other reader.
        path: of the log file, which earlier processes may have written to.
    """

    def __init__(self, popen: subprocess.Popen[bytes], path: Path) -> None:
        self.path = path
        self._tail = bytearray()
        self._lock = threading.Lock()
        assert popen.stdout is not None  # noqa: S101 - it is a pipe
        self._thread = threading.Thread(
            target=self._follow, args=(popen.stdout,), name="workbench-tb-log", daemon=True
        )
        self._thread.start()

    def last_lines(self) -> str:
        """Return the last lines that the process printed, oldest first; ``""`` if there is none."""
        with self._lock:
            lines = self._tail.decode("utf-8", "replace").splitlines()
        return "\n".join(line for line in lines[-_TAIL_LINES:] if line.strip())

    def join(self, timeout: float) -> None:
        """Wait until all its output is read, once it has ended."""
        self._thread.join(timeout)

    def _follow(self, pipe: IO[bytes]) -> None:
        descriptor = pipe.fileno()
        with contextlib.closing(pipe):
            file = self._opened()
            with file or contextlib.nullcontext():
                while output := os.read(descriptor, 65536):
                    with self._lock:
                        self._tail += output
                        del self._tail[:-_TAIL_BYTES]
                    if file is not None:
                        _append(file, output)

    def _opened(self) -> io.FileIO | None:
        """Return the log file; None if it cannot be written, which must not block the process."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = io.FileIO(self.path, "ab+", opener=partial(through_no_link, mode=0o600))
        except OSError:
            return None
        _append(file, f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
        return file


def _append(file: io.FileIO, output: bytes) -> None:
    """Append to the file; if it gets too long, its older half is dropped."""
    with contextlib.suppress(OSError):  # a full disk
        file.write(output)
        if file.seek(0, os.SEEK_END) > _MOST_BYTES:
            file.seek(-_MOST_BYTES // 2, os.SEEK_END)
            kept = file.read(_MOST_BYTES)
            file.truncate(0)
            file.write(kept)
