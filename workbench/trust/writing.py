"""Atomic writing of files, through no link that another user has placed."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that others may read at the same time: they find it complete, or not at all.

    Raises:
        OSError: it cannot be written; the previous contents are kept.
    """
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """Yield a file to write to, which atomically replaces ``path`` at the end of the block.

    It is created under a name that cannot be guessed, so that no link is written through. If the
    block raises, nothing is left of it.

    Raises:
        OSError: it cannot be written; the previous contents are kept.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(draft, flags, 0o666), "wb") as file:
            yield file
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def through_no_link(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a file, as an ``opener=`` of Python's files: links are rejected, pipes do not block.

    Raises:
        OSError: it is a link, or cannot be opened.
    """
    more = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags | more, mode)
