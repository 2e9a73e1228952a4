"""Who else can put something into a folder, and a folder that stays the same whoever moves what.

A file is as safe as every folder above it: who may write to one of them renames what is below and
puts something of their own there. So a path is walked down from the root of the file system, each
folder opened in the one before, without following a link, and asked who owns it and who may write
to it. What was looked at is what is then used: the last folder stays open, and files are named
relative to it.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import weakref
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from workbench.trust.opening import open_folder, open_regular

_CAN_HOLD = hasattr(os, "O_DIRECTORY")
"""Not on Windows, where an open folder cannot be named."""
_ROOT = 0
_ACL = "system.posix_acl_access"


class Stranger(NamedTuple):
    """Somebody else who could have written what is in a folder."""

    path: Path
    """Where they may write: the folder, or one above it."""
    who: str
    """``user 1001 (eve)``, ``group staff``, ``everybody``."""

    def __str__(self) -> str:
        return f"{self.who} may write to {self.path}"


class HeldFolder:
    """An open folder: its files are found whoever moves it, or a folder above it, meanwhile.

    Args:
        path: of the folder; symbolic links are followed once, now.

    Raises:
        OSError: it is no folder, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.shown = Path(path).absolute()
        """What a person knows it by."""
        self.path = self.shown
        """Where this process finds it. Good for as long as this object is there, and in processes
        that were forked from this one; no other process can use it."""
        if _CAN_HOLD:
            self._hold(open_folder(os.path.realpath(path)))

    @classmethod
    def made(cls, parent: str | os.PathLike[str], name: str) -> HeldFolder:
        """A new folder of mode 0700, and no other one that somebody has put in its place.

        Args:
            parent: where it is made; symbolic links are followed.
            name: of the folder.

        Raises:
            FileExistsError: there is something of that name.
            PermissionError: somebody else meddles with it.
            OSError: it cannot be made.
        """
        self = cls.__new__(cls)
        self.shown = self.path = Path(parent).absolute() / name
        if not _CAN_HOLD:
            self.path.mkdir(mode=0o700)
            return self
        at = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.mkdir(name, mode=0o700, dir_fd=at)
            self._hold(open_folder(name, folder=at))
        finally:
            os.close(at)
        # what is put in its place can be empty and another's, or of this user and not empty
        if next(self.path.iterdir(), None) is not None or not is_of_this_user(self.path):
            raise PermissionError(
                errno.EACCES, "somebody else has put another folder in its place", str(self.shown)
            )
        return self

    def _hold(self, descriptor: int) -> None:
        closed = weakref.finalize(self, os.close, descriptor)
        closed.atexit = False  # runs that come home at the end still need it
        by_number = Path(f"/proc/self/fd/{descriptor}")
        try:
            if os.path.samestat(by_number.stat(), os.fstat(descriptor)):
                self.path = by_number
        except OSError:  # macOS, or a container without /proc: by its name
            return


def is_of_this_user(folder: Path) -> bool:
    """Whether a folder belongs to whom a file that is made in it belongs to.

    A mount that knows no owners says the same of both.
    """
    probe = folder / f".{secrets.token_hex(8)}"
    descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        return os.fstat(descriptor).st_uid == folder.stat().st_uid
    finally:
        os.close(descriptor)
        probe.unlink()


def made_private(path: Path) -> Path:
    """A folder that nobody else can write to; it, and those above that are missing, are made.

    Raises:
        PermissionError: it is there, and others can write to it or move it.
        OSError: it cannot be made.
    """
    make_folders(path)
    if stranger := stranger_in(path):
        raise PermissionError(errno.EACCES, str(stranger), str(path))
    return path


def make_folders(path: Path) -> None:
    """Make a folder and those above that are missing, each of mode 0700 whatever the umask says.

    Raises:
        OSError: one cannot be made.
    """
    for folder in reversed((path, *path.parents)):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)


def stranger_in(
    path: str | os.PathLike[str],
    *names: str,
    sticky_is_safe: bool = False,
    same_as: os.stat_result | None = None,
) -> Stranger | None:
    """Who else could have written a folder's files; None: nobody but this user, and root.

    A folder that others may write to is safe above where it is sticky, as ``/tmp`` is: they cannot
    move what is not theirs. Nor can they write below a folder that they cannot enter. A group whose
    only member is this user counts as the user, which is what umask 002 is for.

    Args:
        path: of a folder; symbolic links in it are followed first.
        names: of files in it that are to be looked at as well; those that are not there are not.
        sticky_is_safe: whether it is asked who can move what is of this user in it, not who could
            put something there.
        same_as: of the folder that is in use; another one at that path is somebody else's.

    Raises:
        OSError: it is no folder, or cannot be opened.
    """
    if not hasattr(os, "getuid"):  # Windows, where a profile's folders are its user's
        return None
    real = Path(os.path.realpath(path))
    at = open_folder(real.anchor, to_pass=True)
    try:
        shown, is_reached = Path(real.anchor), True
        for name in real.parts[1:]:
            found = os.fstat(at)
            if problem := _stranger(at, shown, is_reached=is_reached, is_last=False):
                return problem
            is_reached = is_reached and _is_entered_by_others(at, found)
            below = open_folder(name, folder=at, to_pass=True)
            os.close(at)
            at, shown = below, shown / name
        if same_as is not None and not os.path.samestat(os.fstat(at), same_as):
            return Stranger(shown, "whoever has moved it")
        if problem := _stranger(at, shown, is_reached=is_reached, is_last=not sticky_is_safe):
            return problem
        is_reached = is_reached and _is_entered_by_others(at, os.fstat(at))
        for name in names:
            try:
                with open_regular(name, folder=at) as stream:
                    problem = _stranger(
                        stream.fileno(), shown / name, is_reached=is_reached, is_last=True
                    )
            except FileNotFoundError:
                continue
            if problem:
                return problem
    finally:
        os.close(at)
    return None


def _stranger(at: int, shown: Path, *, is_reached: bool, is_last: bool) -> Stranger | None:
    """Who may write to an open file or folder; None where nobody else, or they cannot get there."""
    found = os.fstat(at)
    if not _is_ours(found):
        return Stranger(shown, user(found.st_uid))
    if not is_reached or (found.st_mode & stat.S_ISVTX and not is_last):
        return None
    enters = stat.S_ISDIR(found.st_mode)
    by_others = stat.S_IWOTH | (stat.S_IXOTH if enters else 0)
    by_group = stat.S_IWGRP | (stat.S_IXGRP if enters else 0)
    if found.st_mode & by_others == by_others:
        return Stranger(shown, "everybody")
    if found.st_mode & by_group == by_group and _has_strangers(at, found):
        return Stranger(shown, _group(found.st_gid))
    return None


def _is_entered_by_others(at: int, found: os.stat_result) -> bool:
    by_group = found.st_mode & stat.S_IXGRP and _has_strangers(at, found)
    return bool(found.st_mode & stat.S_IXOTH or by_group)


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid in (_ROOT, os.geteuid())


def _has_strangers(at: int, found: os.stat_result) -> bool:
    """Whether what a file's group may, somebody else may: its group bits are an ACL's limit too."""
    if hasattr(os, "getxattr"):
        try:
            os.getxattr(f"/proc/self/fd/{at}", _ACL)  # of one that is only passed through, too
        except OSError:
            pass  # it has none, or the file system knows of none
        else:
            return True
    return not _is_ones_own(found.st_gid)


@lru_cache(maxsize=64)
def _is_ones_own(group: int) -> bool:
    """Whether this user, and root, are a group's only members.

    A directory of users need not list everybody, so a group counts as one's own only where it has
    the user's name. In a container the user may have no name at all, nor the group that it runs as.
    """
    import grp
    import pwd

    me = os.geteuid()
    mine = {_ROOT, me}
    try:
        entry = grp.getgrgid(group)
    except KeyError:
        return group == os.getegid() and _name_of(me) is None
    names = {_name_of(uid) for uid in mine} - {None}
    if set(entry.gr_mem) - names:
        return False
    if any(user.pw_gid == group and user.pw_uid not in mine for user in pwd.getpwall()):
        return False
    return entry.gr_name in names or group == _ROOT


def _name_of(user: int) -> str | None:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return None


def user(number: int) -> str:
    """A user in words: ``user 1001 (eve)``."""
    name = _name_of(number)
    return f"user {number}" if name is None else f"user {number} ({name})"


def _group(number: int) -> str:
    import grp

    try:
        return f"group {grp.getgrgid(number).gr_name}"
    except KeyError:
        return f"group {number}"
