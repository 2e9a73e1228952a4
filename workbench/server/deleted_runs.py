"""Runs that the user deleted, kept for a while so that they can be restored.

A deleted run is renamed into ``.workbench-deleted/<when>-<random>/<its name>``, in the folder that
contained it. This stays on the same disk, so it is immediate whatever the size, every byte and
every time stamp stays as it was, and a TensorBoard or a shell that has one of its files open keeps
it open. Restoring is a rename, too. Runs that are not restored are removed by `remove_old`. The
folder's name says when a run was deleted, so nothing is lost if the server ends in between.

Jupyter's own way of deleting (the system's trash) is not used: no library can restore what is in
it, on a server no user sees or empties it, and checkpoints in it continue to count against a quota.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from workbench.server.errors import (
    BadRequestError,
    MissingFolderError,
    NotWritableError,
    RunInUseError,
)
from workbench.server.paths import DELETED_FOLDER
from workbench.server.run_listing import is_run, read_run, why_in_use

_ENTRY = re.compile(r"(\d{10,16})-[0-9a-f]{8}")
"""Name of the folder that holds one deleted run: milliseconds since 1970, and a unique part."""
_REMOVING = "removing-"
"""Prefix of the name of a run that is being removed and can no longer be restored."""
_ATTEMPTS = 10_000


@dataclass(frozen=True, kw_only=True)
class DeletedRun:
    """A run that can be restored."""

    path: str
    """Its current path, relative to the server's root."""
    name: str
    removed_at: float
    """When it is removed permanently, in seconds since 1970."""


class DeletedRuns:
    """Deletes runs, restores them, and permanently removes those that were not restored in time.

    The methods may take long on a slow disk and can be called from any thread.

    Args:
        keep_s: Seconds from a deletion until the run is removed permanently.
    """

    def __init__(self, keep_s: float) -> None:
        self.keep_s = keep_s
        self._folders: set[Path] = set()
        self._lock = threading.Lock()

    def delete(self, run: Path, root: Path) -> None:
        """Delete a run.

        Args:
            run: A folder inside ``root``, free of symbolic links.
            root: The server's root.

        Raises:
            BadRequestError: the folder is not a run.
            RunInUseError: the run is being trained; the message says by what.
            NotWritableError: the disk refuses.
        """
        top = root.resolve()
        if run == top or not is_run(run):
            raise BadRequestError(
                f"{run.name} is no run: it holds no run.json. Only runs are deleted here; the file "
                "browser deletes any folder."
            )
        why = why_in_use(run)
        if why:
            raise RunInUseError(why)
        folder = run.parent / DELETED_FOLDER
        entry = folder / f"{time.time() * 1000:.0f}-{secrets.token_hex(4)}"
        with self._lock:
            try:
                folder.mkdir(exist_ok=True)
                if folder.is_symlink():
                    raise NotADirectoryError(f"{folder} is a symbolic link")
                entry.mkdir()
                run.rename(entry / run.name)
            except OSError as error:
                _remove_empty(entry, folder)
                raise _refusal(f"{run.name} was not deleted", run.parent, error) from error
            self._folders.add(folder)

    def restore(self, run: Path) -> Path:
        """Restore a deleted run; if its name was taken meanwhile, it becomes ``<name>-2``.

        Args:
            run: Its current path, inside the server's root and free of symbolic links.

        Returns:
            The path of the restored run.

        Raises:
            BadRequestError: the folder is not a deleted run.
            MissingFolderError: the run was restored or removed at the same moment.
            NotWritableError: the disk refuses.
        """
        entry, folder = run.parent, run.parent.parent
        if folder.name != DELETED_FOLDER or not _ENTRY.fullmatch(entry.name):
            raise BadRequestError(f"{run.name} is not among the deleted runs.")
        parent = folder.parent
        with self._lock:
            try:
                back = _claim(parent, run.name)
                try:
                    run.rename(back)  # onto the empty folder that no one else can claim
                except OSError:
                    back.rmdir()
                    raise
            except FileNotFoundError as error:
                raise MissingFolderError(
                    f"{run.name} was put back or removed meanwhile."
                ) from error
            except OSError as error:
                raise _refusal(f"{run.name} was not put back", parent, error) from error
            _remove_empty(entry, folder)
        return back

    def below(self, folders: Iterable[Path], root: Path) -> list[DeletedRun]:
        """Return the runs that can be restored, the one deleted last first.

        Args:
            folders: Folders named ``.workbench-deleted``; their contents are managed from now on,
                even if an earlier server deleted them.
            root: The server's root, which the paths are relative to.
        """
        top, found = root.resolve(), list[tuple[float, DeletedRun]]()
        for folder in folders:
            with self._lock:
                self._folders.add(folder)
            for entry, deleted_at in _entries(folder):
                removed_at = deleted_at + self.keep_s
                if removed_at <= time.time():
                    continue
                for run in _folders_in(entry):
                    name, path = read_run(run, top).name, run.relative_to(top).as_posix()
                    one = DeletedRun(path=path, name=name, removed_at=removed_at)
                    found.append((deleted_at, one))
        return [run for _, run in sorted(found, key=lambda one: one[0], reverse=True)]

    def remove_old(self) -> None:
        """Permanently remove what was deleted at least `keep_s` ago."""
        for folder in list(self._folders):
            for entry, deleted_at in _entries(folder):
                if deleted_at + self.keep_s <= time.time():
                    with contextlib.suppress(OSError):  # restored at this moment
                        entry.rename(folder / f"{_REMOVING}{entry.name}")
            for gone in _folders_in(folder):
                if gone.name.startswith(_REMOVING):
                    shutil.rmtree(gone, ignore_errors=True)  # follows no symbolic link
            with self._lock:
                _remove_empty(folder)
                if not folder.is_dir():
                    self._folders.discard(folder)


def _entries(folder: Path) -> Iterator[tuple[Path, float]]:
    """Yield each folder that holds a deleted run, and when the run was deleted."""
    for entry in _folders_in(folder):
        named = _ENTRY.fullmatch(entry.name)
        if named:
            yield entry, int(named[1]) / 1000


def _folders_in(folder: Path) -> list[Path]:
    """Return the real folders in a real folder; none if it is gone or a symbolic link."""
    if folder.is_symlink():
        return []
    try:
        with os.scandir(folder) as entries:
            return [Path(one.path) for one in entries if one.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _claim(parent: Path, name: str) -> Path:
    """Make a new empty folder: ``<name>``, or the first of ``<name>-2``, ... that is free."""
    names = (name, *(f"{name}-{number}" for number in islice(count(2), _ATTEMPTS)))
    for one in names:
        try:
            (parent / one).mkdir()
        except FileExistsError:
            continue
        return parent / one
    raise FileExistsError(f"{_ATTEMPTS} folders are called {name}")


def _remove_empty(*folders: Path) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _refusal(what: str, parent: Path, error: OSError) -> NotWritableError:
    reason = error.strerror or str(error)
    return NotWritableError(f"{what}: {parent} cannot be changed ({reason}).")
