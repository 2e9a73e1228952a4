"""Detection of other users who can write to a folder, and folders that cannot be swapped.

A file is only as safe as every folder above it: a user who may write to one of them can rename what
is below and put something else in its place. So a path is walked down from the root of the file
system. Each folder is opened relative to the one above, without following a link, and its owner and
writers are checked. What was checked is what is then used: the last folder stays open, and files
are named relative to it.
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
"""False on Windows, where an open folder cannot be named."""
_ROOT = 0
_ACL = "system.posix_acl_access"


class Stranger(NamedTuple):
    """Another user who could have written what is in a folder."""

    path: Path
    """Where this user may write: the folder, or one above it."""
    who: str
    """``user 1001 (eve)``, ``group staff``, ``everybody``."""

    def __str__(self) -> str:
        return f"{self.who} may write to {self.path}"


class HeldFolder:
    """An open folder: its files are found even if it, or a folder above it, is moved in between.

    Args:
        path: path of the folder; symbolic links are followed once, at this moment.

    Raises:
        OSError: it is not a folder, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.shown = Path(path).absolute()
        """The path by which the user knows it."""
        self.path = self.shown
        """The path by which this process finds it. Valid as long as this object exists, and in
        processes that were forked from this one; no other process can use it."""
        if _CAN_HOLD:
            self._hold(open_folder(os.path.realpath(path)))

    @classmethod
    def made(cls, parent: str | os.PathLike[str], name: str) -> HeldFolder:
        """Make a new folder of mode 0700, and make sure that no other one has replaced it.

        Args:
            parent: folder in which it is made; symbolic links are followed.
            name: name of the folder.

        Raises:
            FileExistsError: something with this name exists.
            PermissionError: another user has replaced it.
            OSError: it cannot be created.
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
        # a folder put in its place can be empty and another user's, or this user's and not empty
        if next(self.path.iterdir(), None) is not None or not is_of_this_user(self.path):
            raise PermissionError(
                errno.EACCES, "someone else has put another folder in its place", str(self.shown)
            )
        return self

    def _hold(self, descriptor: int) -> None:
        closed = weakref.finalize(self, os.close, descriptor)
        closed.atexit = False  # runs that return at exit still need it
        by_number = Path(f"/proc/self/fd/{descriptor}")
        try:
            if os.path.samestat(by_number.stat(), os.fstat(descriptor)):
                self.path = by_number
        except OSError:  # macOS, or a container without /proc: use its name
            return


def is_of_this_user(folder: Path) -> bool:
    """Whether a folder has the owner that a file created in it gets.

    A mount without owners reports the same owner for both.
    """
    probe = folder / f".{secrets.token_hex(8)}"
    descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        return os.fstat(descriptor).st_uid == folder.stat().st_uid
    finally:
        os.close(descriptor)
        probe.unlink()


def made_private(path: Path) -> Path:
    """Return a folder that no other user can write to; it and missing parents are created.

    Raises:
        PermissionError: it exists, and others can write to it or move it.
        OSError: it cannot be created.
    """
    make_folders(path)
    if stranger := stranger_in(path):
        raise PermissionError(errno.EACCES, str(stranger), str(path))
    return path


def make_folders(path: Path) -> None:
    """Make a folder and missing parents, each with mode 0700 whatever the umask is.

    Raises:
        OSError: one cannot be created.
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
    """Return who else could have written a folder's files; None if only this user and root.

    A parent folder that others may write to is safe if it is sticky, as ``/tmp`` is: they cannot
    move what is not theirs. Nor can they write below a folder that they cannot enter. A group whose
    only member is this user counts as the user, which is the purpose of umask 002.

    Args:
        path: path of a folder; symbolic links in it are resolved first.
        names: names of files in it that are checked as well; missing ones are skipped.
        sticky_is_safe: whether to check who can move this user's files in it, instead of who could
            put something there.
        same_as: status of the folder that is in use; a different folder at that path counts as
            written by another user.

    Raises:
        OSError: it is not a folder, or cannot be opened.
    """
    if not hasattr(os, "getuid"):  # Windows, where a profile's folders belong to its user
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
    """Return who else may write to an open file or folder; None if no one else can reach it."""
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
    """Whether another user may do what a file's group may: group bits are an ACL's limit, too."""
    if hasattr(os, "getxattr"):
        try:
            os.getxattr(f"/proc/self/fd/{at}", _ACL)  # also if it is only passed through
        except OSError:
            pass  # it has none, or the file system does not support any
        else:
            return True
    return not _is_ones_own(found.st_gid)


@lru_cache(maxsize=64)
def _is_ones_own(group: int) -> bool:
    """Whether this user and root are a group's only members.

    A user database need not list all users, so a group counts as the user's own only if it has the
    user's name. In a container the user may have no name at all, nor the group that it runs as.
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
    """Return a user as text: ``user 1001 (eve)``."""
    name = _name_of(number)
    return f"user {number}" if name is None else f"user {number} ({name})"


def _group(number: int) -> str:
    import grp

    try:
        return f"group {grp.getgrgid(number).gr_name}"
    except KeyError:
        return f"group {number}"
