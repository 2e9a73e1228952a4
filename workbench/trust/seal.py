"""A seal on files that are unpickled or executed: only a holder of the key can have written them.

File permissions alone cannot guarantee that: a mount may have no owners, a folder above may be
writable by anyone, and what was checked may be replaced before it is read. A sealed file is read
once, the seal is verified over the bytes that were read, and these bytes are used.

The key belongs to the user: 32 random bytes in a file in their home directory that no one else may
read. If such a file cannot be kept, this process has a key of its own, which ends with it.
Processes that are started to train together receive the key in their environment, which only their
user can read.

The seal is HMAC-SHA-256 (RFC 2104) over the purpose of the bytes, the session they belong to, and
the bytes: a file that was sealed for another purpose, or for another session, is rejected.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import os
import secrets
import stat
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from workbench.trust.folders import make_folders
from workbench.trust.opening import as_shown, open_regular, read_at_most
from workbench.trust.writing import write_whole

KEY = "WORKBENCH_KEY"
"""Environment variable with the key that a process receives; hexadecimal."""
SESSION = "WORKBENCH_SESSION"
"""Environment variable with the session that the key is for."""
_KEY_BYTES = 32
_MAGIC = b"workbench.sealed/1 "
_SEAL_CHARACTERS = 64
_HEADER_BYTES = len(_MAGIC) + _SEAL_CHARACTERS + 1
_LINE_CHARACTERS = 32
"""Length of a line's seal: 128 bits."""
_MOST_BYTES = 1 << 40
_TRIES, _PAUSE_S = 200, 0.05
"""How often, and with which pause in seconds, a lock that another process holds is tried."""
_BY_OTHERS = "so someone else may have written it"


class SealError(PermissionError):
    """A file has no seal made with this key: another user may have written it."""


class Seal:
    """Seals data that belongs to one session, and opens it again.

    Args:
        key: secret bytes; with None nothing is checked, and everything is accepted.
        session: session that the files belong to; files of another session are rejected.
    """

    def __init__(self, key: bytes | None, session: str) -> None:
        self._key, self.session = key, session

    @classmethod
    def new(cls) -> Seal:
        """Create a seal for a session that begins now, with this user's key."""
        return cls(_keys.of_user(), secrets.token_hex(16))

    @classmethod
    def unchecked(cls) -> Seal:
        """Create a seal that opens any user's files: for what is neither run nor obeyed."""
        return cls(None, "")

    @classmethod
    def of_this_process(cls) -> Seal:
        """Return the seal that the parent process passed to this one; else one for no session."""
        key, session = _keys.handed()
        return cls(key, session) if key else cls(_keys.of_user(), "")

    @property
    def of_no_session(self) -> Seal:
        """A seal with the same key, for files that say which session a folder belongs to."""
        return Seal(self._key, "")

    def for_session(self, session: str) -> Seal:
        """Return a seal with the same key for another session."""
        return Seal(self._key, session)

    @property
    def checks(self) -> bool:
        """Whether it distinguishes what others wrote from what it has sealed."""
        return self._key is not None

    def to_hand_on(self) -> dict[str, str]:
        """Return environment variables for a process that reads and writes the same files."""
        return {KEY: (self._key or b"").hex(), SESSION: self.session}

    def sealed(self, data: bytes, what: str) -> bytes:
        """Return ``data`` with its seal in front.

        Args:
            data: the bytes.
            what: purpose of the bytes; `opened` has to be called with the same purpose.
        """
        return _MAGIC + self._of(data, what).encode() + b"\n" + data

    def opened(self, sealed: bytes, what: str, path: str | os.PathLike[str]) -> bytes:
        """Return what `sealed` was called with.

        Raises:
            SealError: the bytes were not sealed with this key, for this session and for this
                purpose.
        """
        head, data = sealed[:_HEADER_BYTES], sealed[_HEADER_BYTES:]
        return self._checked(head, data, what, path)

    def _checked(self, head: bytes, data: bytes, what: str, path: str | os.PathLike[str]) -> bytes:
        if not head.startswith(_MAGIC):
            if self._key is not None:
                raise SealError(errno.EACCES, f"it has no seal, {_BY_OTHERS}", as_shown(path))
            return head + data
        if self._key is not None:
            own = _MAGIC + self._of(data, what).encode() + b"\n"
            if not hmac.compare_digest(own, head):
                raise SealError(
                    errno.EACCES,
                    f"it does not have this session's seal, {_BY_OTHERS}",
                    as_shown(path),
                )
        return data

    def write(self, path: Path, data: bytes, what: str) -> None:
        """Write a sealed file atomically; whatever was there is replaced, and no link is followed.

        Raises:
            OSError: it cannot be written; the previous contents are kept.
        """
        write_whole(path, self.sealed(data, what))

    def read(self, path: Path, what: str) -> bytes:
        """Return what `write` was called with.

        Raises:
            SealError: another user may have written it.
            OSError: it is not a regular file, or cannot be read.
        """
        with open_regular(path) as stream:
            head = stream.read(_HEADER_BYTES)  # separate, so that large data is not copied
            return self._checked(head, read_at_most(stream, _MOST_BYTES, path), what, path)

    def write_json(self, path: Path, value: Any, what: str) -> None:
        """Write a value as JSON with `write`."""
        self.write(path, json.dumps(value).encode(), what)

    def read_json(self, path: Path, what: str) -> Any:
        """Return what `write_json` was called with.

        Raises:
            SealError, OSError: as for `read`.
        """
        return json.loads(self.read(path, what))

    def line(self, text: bytes, what: str, number: int) -> bytes:
        """Return a line for a growing file, with its seal and its end of line.

        Args:
            text: text without a tab or an end of line, such as JSON.
            what: purpose of the file.
            number: number of lines before it: no line can be left out or repeated.
        """
        return text + b"\t" + self._of_line(text, what, number) + b"\n"

    def opened_line(
        self, line: bytes, what: str, number: int, path: str | os.PathLike[str]
    ) -> bytes:
        """Return the text that `line` was called with.

        Raises:
            SealError: the line was not sealed with this key for this session and this position.
        """
        text, tab, seal = line.rstrip(b"\n").rpartition(b"\t")
        if not tab:
            text, seal = seal, b""
        if self._key is not None and not hmac.compare_digest(
            self._of_line(text, what, number), seal
        ):
            raise SealError(
                errno.EACCES,
                f"its line {number + 1} does not have this session's seal, {_BY_OTHERS}",
                as_shown(path),
            )
        return text

    def _of_line(self, text: bytes, what: str, number: int) -> bytes:
        return self._of(text, f"{what} line {number}")[:_LINE_CHARACTERS].encode()

    def _of(self, data: bytes, what: str) -> str:
        about = f"{self.session}\0{what}\0{len(data)}\0".encode()
        maker = hmac.new(self._key or b"", about, "sha256")
        maker.update(data)
        return maker.hexdigest()


# --- the key ------------------------------------------------------------------------------------


class _Keys:
    """The keys of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own = secrets.token_bytes(_KEY_BYTES)
        """Key of this process, if the user can have none."""
        self._of_user: bytes | None = None
        self._handed: tuple[bytes, str] | None = None

    def handed(self) -> tuple[bytes, str]:
        """Return key and session from the environment, removing them there: children need none."""
        with self._lock:
            if self._handed is None:
                text, session = os.environ.pop(KEY, ""), os.environ.pop(SESSION, "")
                self._handed = bytes.fromhex(text), session
            return self._handed

    def of_user(self) -> bytes:
        """Return the user's key, created if there is none yet; else this process's own."""
        with self._lock:
            if self._of_user is None:
                with contextlib.suppress(RuntimeError):  # the home directory is unknown
                    self._of_user = _kept(key_file())
                self._of_user = self._of_user or self._own
            return self._of_user

    @property
    def is_kept(self) -> bool:
        """Whether the user's key outlives this process."""
        return self.of_user() != self._own


_keys = _Keys()


def is_kept() -> bool:
    """Return whether what this process seals can be opened after it has ended."""
    return _keys.is_kept


def key_file() -> Path:
    """Return the key's path: ``$XDG_STATE_HOME/workbench/key``, or below ``~/.local/state``."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    root = state if state.is_absolute() else Path.home() / ".local" / "state"
    return root / "workbench" / "key"


class _NoKeyError(Exception):
    """The file exists without a key: a disk was full, or another process is writing it."""


def _kept(path: Path) -> bytes | None:
    """Return the key in a file, created if there is none; None if it cannot be kept private.

    The key is always the one that was read, never the one that was created, so that many processes
    that begin at the same time all have the same.
    """
    try:
        return _read_key(path)
    except (FileNotFoundError, _NoKeyError):
        pass
    except OSError:
        return None
    try:
        make_folders(path.parent)
        with _one_at_a_time(path.with_name("key.lock")):
            try:
                return _read_key(path)
            except FileNotFoundError:
                pass
            except _NoKeyError:
                path.unlink()
            with contextlib.suppress(FileExistsError):  # if there are no locks
                _make_key(path)
            return _read_key(path)
    except (OSError, _NoKeyError):
        return None


def _read_key(path: Path) -> bytes | None:
    with open_regular(path) as stream:
        found = os.fstat(stream.fileno())
        if hasattr(os, "geteuid") and (
            found.st_uid != os.geteuid() or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        ):
            return None  # others may know it
        key = stream.read(_KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise _NoKeyError
    return key


def _make_key(path: Path) -> None:
    """Create a key that appears atomically, if the file system has hard links.

    Raises:
        FileExistsError: a key exists.
        OSError: it cannot be kept here.
    """
    draft = path.with_name(f".key.{secrets.token_hex(8)}")
    try:
        _write_key(draft)
        os.link(draft, path)  # fails if one exists, which a rename would replace
    except FileExistsError:
        raise
    except OSError:  # file systems report missing hard links in different ways
        _write_key(path)
    finally:
        draft.unlink(missing_ok=True)


def _write_key(path: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as stream:
        stream.write(secrets.token_bytes(_KEY_BYTES))
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Generator[None]:
    """Hold a lock in the block; if locks are unavailable, or it is not released, proceed."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        for _ in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_PAUSE_S)
            except OSError:  # a mount without locks
                break
        yield
    finally:
        os.close(descriptor)
