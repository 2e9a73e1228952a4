"""Temporary folders that no other user can look into or replace."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from workbench.trust.folders import make_folders, stranger_in
from workbench.trust.opening import open_folder
from workbench.trust.seal import key_file


def private_folder(prefix: str) -> Path:
    """Make a folder of mode 0700 with a name that cannot be guessed; the caller removes it.

    It is created where temporary files are kept, unless other users could move it there: then in
    the user's home directory.

    Raises:
        OSError: there is no place that belongs to the user alone.
    """
    usual = Path(tempfile.gettempdir())
    for root in (usual, *_of_the_user()):
        with contextlib.suppress(OSError):
            if _is_safe(root):
                return Path(tempfile.mkdtemp(prefix=prefix, dir=root))
    raise PermissionError(
        errno.EACCES,
        "others can move what is made there, and there is no folder of your own to use instead; "
        "set TMPDIR to one that only you may write to",
        str(usual),
    )


def private_socket_folder(prefix: str) -> Path:
    """Make a folder like `private_folder`, where the session's sockets are kept, if possible.

    That place is removed when the user has logged out, so it is not for what outlives a session.
    """
    for runtime in _of_the_session():
        with contextlib.suppress(OSError):
            if _is_private(runtime.stat()):
                return Path(tempfile.mkdtemp(prefix=prefix, dir=runtime))
    return private_folder(prefix)


def own_folders(prefix: str) -> Iterator[tuple[Path, int]]:
    """Yield folders that `private_folder` made for this user, each open during its iteration.

    Folders that others own, or may enter, are skipped unread.

    Args:
        prefix: prefix that they were made with.
    """
    for root in (Path(tempfile.gettempdir()), *_of_the_user()):
        try:
            found = [path for path in root.iterdir() if path.name.startswith(prefix)]
        except OSError:
            continue
        for path in found:
            try:
                descriptor = open_folder(path)
            except OSError:  # gone, a link, not a folder, another user's
                continue
            try:
                if _is_private(os.fstat(descriptor)):
                    yield path, descriptor
            finally:
                os.close(descriptor)


def _of_the_user() -> Iterator[Path]:
    with contextlib.suppress(RuntimeError, OSError):  # the home directory is unknown
        state = key_file().parent
        make_folders(state)
        yield state


def _of_the_session() -> Iterator[Path]:
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute():
        yield runtime


def _is_safe(root: Path) -> bool:
    """Whether no other user can replace a folder in it."""
    return stranger_in(root, sticky_is_safe=True) is None


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid == _me() and not found.st_mode & 0o077


def _me() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0
