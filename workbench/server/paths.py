"""Which folders a browser may name: those below the server's root, and no others.

A path is judged after all symbolic links in it are resolved, so neither ``..`` nor a link placed
inside the root leads out of it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from workbench.server.errors import BadRequestError, MissingFolderError, OutsideRootError


def folder_inside(root: Path, given: object, *, may_be_absent: bool = False) -> Path:
    """The folder that ``given`` names, absolute and free of symbolic links.

    Args:
        root: The server's root.
        given: What the browser sent: a path, absolute or relative to the root. ``""`` and ``"."``
            are the root itself.
        may_be_absent: Whether a folder that nobody has made yet will do.

    Raises:
        BadRequestError: ``given`` is no string or no path at all.
        OutsideRootError: it leads out of the root.
        MissingFolderError: there is no such folder and it may not be absent, or it is a file or
            not readable.
    """
    if not isinstance(given, str):
        raise BadRequestError(
            f"A folder is named by a string, got {type(given).__name__}; send a path inside {root}."
        )
    try:
        return _checked(root.resolve(), given, may_be_absent)
    except (OSError, RuntimeError, ValueError) as error:
        # NUL bytes, names longer than the file system takes, loops of symbolic links
        raise BadRequestError(f"{_shown(given)} is not a path: {type(error).__name__}.") from error


def relative_to_root(root: Path, folder: Path) -> str:
    """``folder`` as the browser names it: relative to the root, ``/`` between the parts."""
    return folder.relative_to(root.resolve()).as_posix()


def _checked(home: Path, given: str, may_be_absent: bool) -> Path:
    folder = (home / given).resolve()
    if folder.is_symlink():  # from Python 3.13 on, `resolve` leaves a loop of links as it is
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not folder.is_relative_to(home):
        raise OutsideRootError(
            f"{_shown(given)} leads outside the folder Jupyter serves ({home}); choose a folder "
            "inside it, or start Jupyter with a ServerApp.root_dir that contains it."
        )
    if may_be_absent and not folder.exists():
        return folder
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else "not there"
        raise MissingFolderError(f"{_shown(given)} is {what}; name an existing folder in {home}.")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise MissingFolderError(f"{_shown(given)} cannot be read; check its permissions.")
    return folder


def _shown(given: str) -> str:
    text = given if len(given) <= 200 else given[:200] + "…"
    return repr(text)
