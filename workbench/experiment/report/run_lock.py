"""Who may write a run directory: one experiment at a time, for as long as its process lives.

The lock is the operating system's on ``run.lock``; it ends with the process, however that ends. The
file says who holds it, for the others to read. Processes that are forked from this one close it:
workers of a `DataLoader` may outlive a kernel that is killed. Where a file system has no locks, a
run is not protected.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from workbench.trust import read_regular, through_no_link

_NAME = "run.lock"
_MOST_BYTES = 4096
_WOULD_BLOCK = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK)


class InUseError(RuntimeError):
    """Another process, or another experiment of this one, writes the run directory."""


class RunLock:
    """A lock on a run directory, held until `release` or the end of the process.

    Raises:
        InUseError: somebody else holds it; the message says who.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor, self._holders = -1, 1
        try:
            import fcntl

            descriptor = _opened(folder / _NAME)
        except (ImportError, OSError):  # Windows; a folder that cannot be written to
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in _WOULD_BLOCK:
                raise InUseError(_refusal(folder)) from None
            return
        self._descriptor = descriptor
        _held.add(self)
        with contextlib.suppress(OSError):  # a full disk: then it does not say whose it is
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_who()).encode(), 0)

    def share(self) -> None:
        """Hold it for one more, who calls `release` too."""
        with _counting:
            self._holders += 1

    def is_of(self, folder: Path) -> bool:
        """Whether it locks what is at that path now: the folder may have been deleted, or moved."""
        try:
            there, here = (folder / _NAME).stat(), os.fstat(self._descriptor)
        except OSError:
            return self._descriptor < 0
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def release(self) -> None:
        """Let others write, once all who hold it have released it."""
        with _counting:
            self._holders -= 1
            if self._holders > 0:
                return
        self.forget()

    def forget(self) -> None:
        """Let go of it without a word: in a fork, whose parent has it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.forget()


def _opened(path: Path) -> int:
    try:
        return through_no_link(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:  # a colleague's: it can be locked, though not written to
        return through_no_link(str(path), os.O_RDONLY | os.O_CLOEXEC)


_counting = threading.Lock()
_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _release_in_fork() -> None:
    for lock in _held:
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_fork)


def _who() -> dict[str, Any]:
    return {"host": platform.node(), "pid": os.getpid(), "since": time.time()}


def _refusal(folder: Path) -> str:
    try:
        who = json.loads(read_regular(folder / _NAME, _MOST_BYTES))
        pid, host = int(who["pid"]), str(who["host"])[:100]
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(who["since"])))
        holder = f"process {pid} on {host} since {since}"
        if (pid, host) == (os.getpid(), platform.node()):
            holder = f"another experiment of this process since {since}"
    except (OSError, ValueError, TypeError, LookupError, OverflowError):
        holder = "another process"
    return (
        f"{folder} is in use by {holder}, and only one may train it. It can be looked at "
        "meanwhile; to train it here, close the experiment there"
    )
