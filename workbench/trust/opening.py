"""Opening of regular files that others may have put there: without blocking, with known size.

Between a check of a path and an ``open`` of it another user may put something else in its place. So
nothing is checked by path: the path is opened once, without following a link and without waiting
for the other end of a pipe, and all checks are made on the open file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from workbench.trust.text import printable

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FLAGS = (
    os.O_RDONLY
    | _NO_FOLLOW
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_FOLDER = getattr(os, "O_DIRECTORY", 0) | _NO_FOLLOW
_TO_PASS = getattr(os, "O_PATH", os.O_RDONLY)
"""Flags to open a folder that is only passed through: one that others may enter, but not list, can
be opened this way."""
_CHUNK = 1 << 20
_CAN_DESCEND = bool(_FOLDER) and os.open in os.supports_dir_fd
"""False on Windows, where no file can be opened relative to an open folder."""
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link"),
)


class NotAFileError(OSError):
    """The path exists, but is not a regular file: it is a link, a pipe, a device, a folder."""


class TooLargeError(OSError):
    """A file has more bytes than may be read."""


def open_regular(path: str | os.PathLike[str], *, folder: int | None = None) -> BinaryIO:
    """Open a regular file for reading.

    Links in the folders on the path are followed; to reject those as well, see `open_beneath`.

    Args:
        path: path of the file; relative to ``folder`` if that is given.
        folder: descriptor of an open folder.

    Raises:
        NotAFileError: it is not a regular file.
        FileNotFoundError: it does not exist.
        OSError: it cannot be read.
    """
    return regular(_opened(path, _FLAGS, folder), path)


def _opened(path: str | os.PathLike[str], flags: int, folder: int | None = None) -> int:
    try:
        return os.open(path, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EOPNOTSUPP, errno.EMLINK):
            # a link (EMLINK: FreeBSD); a socket, a device without a driver
            raise NotAFileError(error.errno, "it is no regular file", as_shown(path)) from None
        raise


def regular(descriptor: int, path: str | os.PathLike[str]) -> BinaryIO:
    """Return a file of an open descriptor, which is closed if it is not a regular file.

    Raises:
        NotAFileError: it is not a regular file.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise NotAFileError(errno.EINVAL, f"it is {kind_of(found.st_mode)}", as_shown(path))
    if hasattr(os, "set_blocking"):
        os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def as_shown(path: str | os.PathLike[str]) -> str:
    """Return a path with the name that the user knows, even if its folder is an open descriptor."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118 - `split` gave two texts


def kind_of(mode: int) -> str:
    """Return what a file's mode says it is: ``a named pipe``."""
    return next((name for test, name in _KINDS if test(mode)), "a regular file")


def read_regular(path: str | os.PathLike[str], most: int, *, folder: int | None = None) -> bytes:
    """Return all bytes of a regular file.

    Args:
        path: path of the file; relative to ``folder`` if that is given.
        most: maximum number of bytes; a file that grows beyond it while it is read is rejected too.
        folder: descriptor of an open folder.

    Raises:
        NotAFileError: it is not a regular file.
        TooLargeError: it has more than ``most`` bytes.
        OSError: it cannot be read.
    """
    with open_regular(path, folder=folder) as stream:
        return read_at_most(stream, most, path)


def read_at_most(stream: BinaryIO, most: int, path: str | os.PathLike[str]) -> bytes:
    """Return the remaining bytes of an open file.

    Raises:
        TooLargeError: there are more than ``most`` bytes.
    """
    size = os.fstat(stream.fileno()).st_size
    data = b""
    if size <= most:
        data = stream.read(size + 1)
        while size < len(data) <= most and (more := stream.read(_CHUNK)):  # it grows
            data += more
    if size > most or len(data) > most:
        found = max(size, len(data))
        raise TooLargeError(
            errno.EFBIG, f"it has {found:,} bytes, and {most:,} are read", as_shown(path)
        )
    return data


class OpenFile:
    """An open regular file: everything queried and read refers to the same file.

    Args:
        path: path at which it was opened, by which users know it.
        stream: its stream for reading; closed at the end of the block.
    """

    def __init__(self, path: str | os.PathLike[str], stream: BinaryIO) -> None:
        self.path, self.stream = Path(path), stream

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> OpenFile:
        """Open the file at a path that the user has named: links on the path are followed.

        Raises:
            NotAFileError: it is a pipe, a device or a folder.
            OSError: it does not exist, or cannot be read.
        """
        return cls(path, regular(_opened(path, _FLAGS & ~_NO_FOLLOW), path))

    @classmethod
    def beneath(cls, root: str | os.PathLike[str], path: str | os.PathLike[str]) -> OpenFile:
        """Open like `open_beneath`: no link on the path from ``root`` is followed."""
        return cls(path, open_beneath(root, path))

    @property
    def name(self) -> str:
        """The last part of its path, made safe to show: another user may have chosen the name."""
        return printable(self.path.name)

    @property
    def stat(self) -> os.stat_result:
        """Return the status of the open file."""
        return os.fstat(self.stream.fileno())

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return self.stat.st_size

    def first_bytes(self, count: int) -> bytes:
        """Return at most ``count`` bytes, from its beginning."""
        with open(self.rewound(), "rb", closefd=False) as whole:
            return whole.read(min(count, self.size))

    def rewound(self) -> int:
        """Return its descriptor, at its first byte, as for the standard input of a process."""
        descriptor = self.stream.fileno()
        os.lseek(descriptor, 0, os.SEEK_SET)  # of the file: a stream's own `seek` may be buffered
        return descriptor

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()


def open_folder(
    path: str | os.PathLike[str], *, folder: int | None = None, to_pass: bool = False
) -> int:
    """Return the descriptor of a folder that is not a symbolic link; the caller closes it.

    Args:
        path: path of the folder; relative to ``folder`` if that is given.
        folder: descriptor of an open folder.
        to_pass: whether it is only inspected and passed through, which needs no permission to list
            it.

    Raises:
        OSError: it is not a folder, or cannot be opened.
    """
    return os.open(path, _FOLDER | (_TO_PASS if to_pass else os.O_RDONLY), dir_fd=folder)


def open_beneath(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file below a folder; no link on the path from there is followed.

    Args:
        root: a folder; links in its own path are followed.
        path: path below it, relative or absolute, without ``..``.

    Raises:
        ValueError: the path is not below the folder.
        NotAFileError: it is not a regular file, or a folder on the path is a link.
        OSError: it cannot be read.
    """
    parts = _parts(root, path)
    if not _CAN_DESCEND:
        return _open_where_it_is(root, parts, path)
    try:
        return _descended(root, parts)
    except NotAFileError as error:
        raise NotAFileError(error.errno, error.strerror, os.fspath(path)) from None
    except PermissionError:
        if hasattr(os, "O_PATH"):
            raise
        return _open_where_it_is(root, parts, path)  # a folder that may be entered but not listed
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            raise
        raise NotAFileError(errno.ELOOP, "a link leads to it", os.fspath(path)) from None


def _descended(root: str | os.PathLike[str], parts: list[str]) -> BinaryIO:
    *folders, name = parts
    at = os.open(root, _TO_PASS | getattr(os, "O_DIRECTORY", 0))
    try:
        for one in folders:
            below = open_folder(one, folder=at, to_pass=True)
            os.close(at)
            at = below
        return open_regular(name, folder=at)
    finally:
        os.close(at)


def _open_where_it_is(
    root: str | os.PathLike[str], parts: list[str], path: str | os.PathLike[str]
) -> BinaryIO:
    """Open by name, if folders cannot be opened relative to each other: checked just before."""
    real = Path(os.path.realpath(root), *parts)
    if Path(os.path.realpath(real)) != real:
        raise NotAFileError(errno.ELOOP, "a link leads to it", os.fspath(path))
    return open_regular(real)


def _parts(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> list[str]:
    below = Path(path)
    if below.is_absolute():
        below = below.relative_to(root)
    if not below.parts or ".." in below.parts:
        raise ValueError(f"{os.fspath(path)} names no file below {os.fspath(root)}")
    return list(below.parts)
