"""Open what somebody else may have put there: a regular file, at once, of a size that is known.

Between a look at a path and an ``open`` of it another user may put something else in its place. So
nothing is asked of the path: it is opened once, without following a link and without waiting for
the other end of a pipe, and what is then asked is asked of the open file.
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
"""Of a folder that is passed through: one that others may enter, and not list, can be opened so."""
_CHUNK = 1 << 20
_CAN_DESCEND = bool(_FOLDER) and os.open in os.supports_dir_fd
"""Not on Windows, where no file is opened relative to an open folder."""
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link"),
)


class NotAFileError(OSError):
    """There is something, and it is no regular file: a link, a pipe, a device, a folder."""


class TooLargeError(OSError):
    """A file has more bytes than are read of it."""


def open_regular(path: str | os.PathLike[str], *, folder: int | None = None) -> BinaryIO:
    """Open a regular file for reading.

    Links in the folders on the way to it are followed; to have those refused as well, see
    `open_beneath`.

    Args:
        path: of the file; relative to ``folder`` where that is given.
        folder: an open folder's descriptor.

    Raises:
        NotAFileError: it is something else.
        FileNotFoundError: it is not there.
        OSError: it cannot be read.
    """
    return regular(_opened(path, _FLAGS, folder), path)


def _opened(path: str | os.PathLike[str], flags: int, folder: int | None = None) -> int:
    try:
        return os.open(path, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EOPNOTSUPP, errno.EMLINK):
            # a link (EMLINK: FreeBSD); a socket, a device of nothing
            raise NotAFileError(error.errno, "it is no regular file", as_shown(path)) from None
        raise


def regular(descriptor: int, path: str | os.PathLike[str]) -> BinaryIO:
    """A file of an open descriptor, which is closed where it is none.

    Raises:
        NotAFileError: it is something else.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise NotAFileError(errno.EINVAL, f"it is {kind_of(found.st_mode)}", as_shown(path))
    if hasattr(os, "set_blocking"):
        os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def as_shown(path: str | os.PathLike[str]) -> str:
    """With the name that a person knows, where a folder is named by its open descriptor."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118 - `split` gave two texts


def kind_of(mode: int) -> str:
    """What a file's mode says it is: ``a named pipe``."""
    return next((name for test, name in _KINDS if test(mode)), "a regular file")


def read_regular(path: str | os.PathLike[str], most: int, *, folder: int | None = None) -> bytes:
    """All bytes of a regular file.

    Args:
        path: of the file; relative to ``folder`` where that is given.
        most: how many bytes are read; one that grows meanwhile is refused too.
        folder: an open folder's descriptor.

    Raises:
        NotAFileError: it is something else.
        TooLargeError: it has more bytes.
        OSError: it cannot be read.
    """
    with open_regular(path, folder=folder) as stream:
        return read_at_most(stream, most, path)


def read_at_most(stream: BinaryIO, most: int, path: str | os.PathLike[str]) -> bytes:
    """What is left of an open file.

    Raises:
        TooLargeError: that is more than ``most`` bytes.
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
    """A regular file that is open: what is asked of it, and what is read of it, is the same file.

    Args:
        path: that it was opened at, by which people know it.
        stream: of it, for reading; closed at the end of the block.
    """

    def __init__(self, path: str | os.PathLike[str], stream: BinaryIO) -> None:
        self.path, self.stream = Path(path), stream

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> OpenFile:
        """The file at a path that the user has named: links on the way to it are followed.

        Raises:
            NotAFileError: it is a pipe, a device or a folder.
            OSError: it is not there, or cannot be read.
        """
        return cls(path, regular(_opened(path, _FLAGS & ~_NO_FOLLOW), path))

    @classmethod
    def beneath(cls, root: str | os.PathLike[str], path: str | os.PathLike[str]) -> OpenFile:
        """As `open_beneath`: no link on the way from ``root`` is followed."""
        return cls(path, open_beneath(root, path))

    @property
    def name(self) -> str:
        """The last part of its path, as it may be shown: a file's name may be anybody's."""
        return printable(self.path.name)

    @property
    def stat(self) -> os.stat_result:
        """Of the open file."""
        return os.fstat(self.stream.fileno())

    @property
    def size(self) -> int:
        """In bytes."""
        return self.stat.st_size

    def first_bytes(self, count: int) -> bytes:
        """At most ``count`` bytes, from its beginning."""
        with open(self.rewound(), "rb", closefd=False) as whole:
            return whole.read(min(count, self.size))

    def rewound(self) -> int:
        """Its descriptor, at its first byte, as for the standard input of a process."""
        descriptor = self.stream.fileno()
        os.lseek(descriptor, 0, os.SEEK_SET)  # of the file: a stream's own `seek` may only look
        return descriptor

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()


def open_folder(
    path: str | os.PathLike[str], *, folder: int | None = None, to_pass: bool = False
) -> int:
    """The descriptor of a folder that is no symbolic link; the caller closes it.

    Args:
        path: of the folder; relative to ``folder`` where that is given.
        folder: an open folder's descriptor.
        to_pass: whether it is only asked about and gone through, which needs no right to list it.

    Raises:
        OSError: it is none, or cannot be opened.
    """
    return os.open(path, _FOLDER | (_TO_PASS if to_pass else os.O_RDONLY), dir_fd=folder)


def open_beneath(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file below a folder; no link on the way from there is followed.

    Args:
        root: a folder; links in its own path are followed.
        path: below it, relative or absolute, without ``..``.

    Raises:
        ValueError: the path is not below the folder.
        NotAFileError: it is no regular file, or a folder on the way is a link.
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
        return _open_where_it_is(root, parts, path)  # a folder that may be entered, not listed
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
    """By its name, where folders cannot be opened one in the other: looked at just before."""
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
