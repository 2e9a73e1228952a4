"""Validation of the folders and files that a browser names: only those below the server's root.

A path is checked after all symbolic links in it are resolved, so neither ``..`` nor a link placed
inside the root leads out of it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from workbench.server.errors import (
    BadRequestError,
    MissingFileError,
    MissingFolderError,
    OutsideRootError,
)

DELETED_FOLDER = ".workbench-deleted"
"""Name of the folder next to runs that keeps deleted ones for a while (`deleted_runs`)."""


def folder_inside(root: Path, given: object, *, may_be_absent: bool = False) -> Path:
    """Return the folder that ``given`` names, absolute and free of symbolic links.

    Args:
        root: The server's root.
        given: What the browser sent: a path, absolute or relative to the root. ``""`` and ``"."``
            are the root itself.
        may_be_absent: Whether a folder that does not exist yet is accepted.

    Raises:
        BadRequestError: ``given`` is not a string, or not a path.
        OutsideRootError: it leads out of the root.
        MissingFolderError: there is no such folder and it must exist, or it is a file or not
            readable.
    """
    top, folder = _inside(root, given, "folder")
    if may_be_absent and not folder.exists():
        return folder
    if not folder.is_dir():
        what = "a file, not a folder"
        if not folder.exists():
            what = "not there: a training makes its folder when it begins"
        raise MissingFolderError(f"{_shown(given)} is {what}; name an existing folder in {top}.")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise MissingFolderError(f"{_shown(given)} cannot be read; check its permissions.")
    return folder


def folder_itself(root: Path, given: object) -> Path:
    """Like `folder_inside`, for a folder to be moved: no symbolic link may lead to it.

    Raises:
        BadRequestError: it is a link, or a folder on its path is.
    """
    folder = folder_inside(root, given)
    if folder != Path(os.path.normpath(root.resolve() / str(given))):
        raise BadRequestError(f"{_shown(given)} is a symbolic link, or below one; name {folder}.")
    return folder


def file_inside(root: Path, given: object) -> Path:
    """Return the file that ``given`` names, absolute and free of symbolic links.

    Raises:
        BadRequestError: ``given`` is not a string, or not a path.
        OutsideRootError: it leads out of the root.
        MissingFileError: there is no such file, or it is a folder, a pipe, or not readable.
    """
    top, file = _inside(root, given, "file")
    if not file.is_file():  # a named pipe would block forever, a device never end
        what = "no file" if file.exists() else "not there"
        raise MissingFileError(f"{_shown(given)} is {what}; name an existing file in {top}.")
    if not os.access(file, os.R_OK):
        raise MissingFileError(f"{_shown(given)} cannot be read; check its permissions.")
    return file


def relative_to_root(root: Path, folder: Path) -> str:
    """Return ``folder`` as the browser names it: relative to the root, with ``/`` as separator."""
    return folder.relative_to(root.resolve()).as_posix()


def contents_path(root: Path, given: str) -> str | None:
    """Return the contents service's path of a file or folder; None if it is outside the root.

    A kernel names a path as it reached it: by another name of the root, through a symbolic link,
    with ``..`` in between. So the path's ancestors are compared with the root by the file system's
    own identity: first the ancestors of the fully resolved path, which has only one name, then
    those of the path as given, because Jupyter follows a link out of its root.

    Args:
        root: the server's root.
        given: absolute, or relative to the root; it need not exist.
    """
    try:
        top = root.stat()
        path = root.absolute() / given
        for named in (path.resolve(), Path(os.path.normpath(path))):
            for parent in (named, *named.parents):
                if parent.exists() and os.path.samestat(parent.stat(), top):
                    found = named.relative_to(parent).as_posix()
                    return "" if found == "." else found
    except (OSError, RuntimeError, ValueError):  # not a path at all, or one that may not be read
        pass
    return None


def _inside(root: Path, given: object, kind: str) -> tuple[Path, Path]:
    """Return the root and the path that ``given`` names in it, both resolved; it need not exist."""
    if not isinstance(given, str):
        raise BadRequestError(
            f"A {kind} is named by a string, got {type(given).__name__}; send a path inside {root}."
        )
    try:
        top = root.resolve()
        path = _resolved(top, given)
    except (OSError, RuntimeError, ValueError) as error:
        # NUL bytes, names longer than the file system allows, loops of symbolic links
        raise BadRequestError(f"{_shown(given)} is not a path: {type(error).__name__}.") from error
    if not path.is_relative_to(top):
        raise OutsideRootError(
            f"{_shown(given)} leads outside the folder Jupyter serves ({top}); choose a {kind} "
            "inside it, or start Jupyter with a ServerApp.root_dir that contains it."
        )
    return top, path


def _resolved(top: Path, given: str) -> Path:
    path = (top / given).resolve()
    if path.is_symlink():  # from Python 3.13 on, `resolve` leaves a loop of links as it is
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if path.is_relative_to(top):
        path.exists()  # raises if a name is longer than the file system allows
    return path


def _shown(given: object) -> str:
    text = str(given)
    text = text if len(text) <= 200 else text[:200] + "…"
    return repr(text)
