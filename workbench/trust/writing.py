"""Write a file in one piece, through no link that somebody else has laid."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that others read meanwhile: they find it whole, or not at all.

    Raises:
        OSError: it cannot be written; what was there before stays.
    """
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` at the end of the block, in one piece.

    It is made under a name that nobody can know, so that no link is written through. Where the
    block raises, nothing is left of it.

    Raises:
        OSError: it cannot be written; what was there before stays.
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
    """An ``opener=`` of Python's files: a link is refused, a pipe not waited for.

    Raises:
        OSError: it is one, or cannot be opened.
    """
    more = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags | more, mode)
