"""A seal on files that are unpickled or obeyed: whoever has no key cannot have written them.

Permissions of files cannot say that by themselves: a mount may know no owners, a folder above may
be anybody's, and what was looked at may be replaced before it is read. A file with a seal is read
once, the seal is checked over the bytes that were read, and these bytes are used.

The key is the user's: 32 random bytes in a file of their home that nobody else may read. Where such
a file cannot be kept, this process has a key of its own, which ends with it. Processes that are
started to train together are handed the key in their environment, which only their user can read.

The seal is HMAC-SHA-256 (RFC 2104) over what the bytes are for, the session they belong to, and the
bytes: a file that was sealed as something else, or for another session, does not pass.
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
"""The environment's name for the key that a process is handed; hexadecimal."""
SESSION = "WORKBENCH_SESSION"
"""The environment's name for the session that it is handed for."""
_KEY_BYTES = 32
_MAGIC = b"workbench.sealed/1 "
_SEAL_CHARACTERS = 64
_HEADER_BYTES = len(_MAGIC) + _SEAL_CHARACTERS + 1
_LINE_CHARACTERS = 32
"""Of a line's seal: 128 bits."""
_MOST_BYTES = 1 << 40
_TRIES, _PAUSE_S = 200, 0.05
"""How often a lock that another process holds is tried for."""
_SOMEBODY = "so somebody else may have written it"


class SealError(PermissionError):
    """A file has no seal of this key: somebody else may have written it."""


class Seal:
    """Seals what belongs to one session, and opens it again.

    Args:
        key: secret bytes; None: nothing is checked, and everything passes.
        session: what the files belong to; files of another one do not pass.
    """

    def __init__(self, key: bytes | None, session: str) -> None:
        self._key, self.session = key, session

    @classmethod
    def new(cls) -> Seal:
        """For a session that begins now, under this user's key."""
        return cls(_keys.of_user(), secrets.token_hex(16))

    @classmethod
    def unchecked(cls) -> Seal:
        """Opens what anybody may have written: for what is neither run nor obeyed."""
        return cls(None, "")

    @classmethod
    def of_this_process(cls) -> Seal:
        """That which this process was handed by the one that started it; else for no session."""
        key, session = _keys.handed()
        return cls(key, session) if key else cls(_keys.of_user(), "")

    @property
    def of_no_session(self) -> Seal:
        """Under the same key, for what says which session a folder is of."""
        return Seal(self._key, "")

    def for_session(self, session: str) -> Seal:
        """Under the same key."""
        return Seal(self._key, session)

    @property
    def checks(self) -> bool:
        """Whether it tells what others wrote from what it has sealed."""
        return self._key is not None

    def to_hand_on(self) -> dict[str, str]:
        """Variables of the environment for a process that is to read and write the same files."""
        return {KEY: (self._key or b"").hex(), SESSION: self.session}

    def sealed(self, data: bytes, what: str) -> bytes:
        """``data`` with its seal before it.

        Args:
            data: the bytes.
            what: what they are for; `opened` has to be asked for the same.
        """
        return _MAGIC + self._of(data, what).encode() + b"\n" + data

    def opened(self, sealed: bytes, what: str, path: str | os.PathLike[str]) -> bytes:
        """What `sealed` was given.

        Raises:
            SealError: the bytes were not sealed by this key, for this session and for this.
        """
        head, data = sealed[:_HEADER_BYTES], sealed[_HEADER_BYTES:]
        return self._checked(head, data, what, path)

    def _checked(self, head: bytes, data: bytes, what: str, path: str | os.PathLike[str]) -> bytes:
        if not head.startswith(_MAGIC):
            if self._key is not None:
                raise SealError(errno.EACCES, f"it has no seal, {_SOMEBODY}", as_shown(path))
            return head + data
        if self._key is not None:
            own = _MAGIC + self._of(data, what).encode() + b"\n"
            if not hmac.compare_digest(own, head):
                raise SealError(
                    errno.EACCES,
                    f"it does not have this session's seal, {_SOMEBODY}",
                    as_shown(path),
                )
        return data

    def write(self, path: Path, data: bytes, what: str) -> None:
        """Write a sealed file in one piece; whatever was there is replaced, and no link followed.

        Raises:
            OSError: it cannot be written; what was there before stays.
        """
        write_whole(path, self.sealed(data, what))

    def read(self, path: Path, what: str) -> bytes:
        """What `write` was given.

        Raises:
            SealError: somebody else may have written it.
            OSError: it is no regular file, or cannot be read.
        """
        with open_regular(path) as stream:
            head = stream.read(_HEADER_BYTES)  # apart, so that what may be large is not copied
            return self._checked(head, read_at_most(stream, _MOST_BYTES, path), what, path)

    def write_json(self, path: Path, value: Any, what: str) -> None:
        """`write` what JSON can say."""
        self.write(path, json.dumps(value).encode(), what)

    def read_json(self, path: Path, what: str) -> Any:
        """What `write_json` was given.

        Raises:
            SealError, OSError: as `read`.
        """
        return json.loads(self.read(path, what))

    def line(self, text: bytes, what: str, number: int) -> bytes:
        """A line of a file that grows, with its seal and its end.

        Args:
            text: without a tab or an end of line, as JSON is.
            what: what the file is for.
            number: how many lines come before it: none can be left out, or said again.
        """
        return text + b"\t" + self._of_line(text, what, number) + b"\n"

    def opened_line(
        self, line: bytes, what: str, number: int, path: str | os.PathLike[str]
    ) -> bytes:
        """The text that `line` was given.

        Raises:
            SealError: the line was not sealed by this key for this session and this place.
        """
        text, tab, seal = line.rstrip(b"\n").rpartition(b"\t")
        if not tab:
            text, seal = seal, b""
        if self._key is not None and not hmac.compare_digest(
            self._of_line(text, what, number), seal
        ):
            raise SealError(
                errno.EACCES,
                f"its line {number + 1} does not have this session's seal, {_SOMEBODY}",
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
        """Of this process, where the user can have none."""
        self._of_user: bytes | None = None
        self._handed: tuple[bytes, str] | None = None

    def handed(self) -> tuple[bytes, str]:
        """What the environment held, out of which it is taken: children need none."""
        with self._lock:
            if self._handed is None:
                text, session = os.environ.pop(KEY, ""), os.environ.pop(SESSION, "")
                self._handed = bytes.fromhex(text), session
            return self._handed

    def of_user(self) -> bytes:
        """The user's key, made where there is none yet; else this process's own."""
        with self._lock:
            if self._of_user is None:
                with contextlib.suppress(RuntimeError):  # nobody knows where the home is
                    self._of_user = _kept(key_file())
                self._of_user = self._of_user or self._own
            return self._of_user

    @property
    def is_kept(self) -> bool:
        """Whether the user's key outlives this process."""
        return self.of_user() != self._own


_keys = _Keys()


def is_kept() -> bool:
    """Whether what this process seals can be opened after it has ended."""
    return _keys.is_kept


def key_file() -> Path:
    """Where the user's key is kept: ``$XDG_STATE_HOME/workbench/key``, ``~/.local/state`` else."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    root = state if state.is_absolute() else Path.home() / ".local" / "state"
    return root / "workbench" / "key"


class _NoKeyError(Exception):
    """The file is there, and holds no key: of a disk that was full, or of a process at work."""


def _kept(path: Path) -> bytes | None:
    """The key in a file, made where there is none; None where it cannot be kept to oneself.

    What is used is what is read, never what was made, so that of many that begin at once all have
    the same.
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
            with contextlib.suppress(FileExistsError):  # where there are no locks
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
    """Make a key that appears whole, where the file system has hard links.

    Raises:
        FileExistsError: there is one.
        OSError: it cannot be kept here.
    """
    draft = path.with_name(f".key.{secrets.token_hex(8)}")
    try:
        _write_key(draft)
        os.link(draft, path)  # fails where there is one, which a rename would replace
    except FileExistsError:
        raise
    except OSError:  # as each of them says differently that it has no links
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
    """Nobody else is in the block; where nothing can be locked, or a lock is not given back, go."""
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
