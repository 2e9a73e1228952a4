from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.trust import (
    NotAFileError,
    OpenFile,
    TooLargeError,
    open_beneath,
    open_regular,
    read_regular,
)


@pytest.mark.parametrize("kind", ["pipe", "link", "broken link", "folder", "socket", "device"])
def test_only_a_regular_file_is_opened_and_nothing_is_waited_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    (tmp_path / "file").write_text("of somebody")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "file")
    elif kind == "broken link":
        path.symlink_to(tmp_path / "nothing")
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    else:
        path = Path("/dev/zero")
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    with pytest.raises(NotAFileError):
        open_regular(path)
    if before:
        assert len(list(Path("/proc/self/fd").iterdir())) == before, "it was left open"


def test_no_more_is_read_than_is_said(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, 100) == b"x" * 100
    with pytest.raises(TooLargeError, match="100 bytes, and 99 are read"):
        read_regular(path, 99)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nothing", 99)


def test_below_a_folder_no_link_leads_out(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a" / "b").mkdir(parents=True)
    outside.mkdir()
    for folder in (root / "a" / "b", outside):
        (folder / "file").write_text(folder.name)
    (root / "link").symlink_to(outside)
    (root / "a" / "link").symlink_to(outside / "file")
    (tmp_path / "other name").symlink_to(root)
    for named in (root, tmp_path / "other name"):
        for path in ("a/b/file", named / "a" / "b" / "file"):
            with open_beneath(named, path) as stream:
                assert stream.read() == b"b"
    for path in ("link/file", "a/link"):
        with pytest.raises(NotAFileError):
            open_beneath(root, path)
    for path in ("../outside/file", outside / "file", "", "a/../../outside/file"):
        with pytest.raises(ValueError, match=r"names no file|is not in the subpath"):
            open_beneath(root, path)


def test_an_open_file_stays_the_one_that_was_looked_at(tmp_path: Path) -> None:
    path, link = tmp_path / "it", tmp_path / "link"
    path.write_bytes(b"mine" * 5_000)
    link.symlink_to(path)
    with OpenFile.at(link) as file:
        assert file.start(2) == b"mi"
        path.unlink()
        path.write_bytes(b"another")
        link.unlink()
        assert (file.size, file.name) == (20_000, "link")
        assert file.start(1 << 40) == b"mine" * 5_000
        # another process reads it from its first byte, and this one again
        say = "import sys; print(len(sys.stdin.buffer.read()))"
        said = subprocess.check_output([sys.executable, "-c", say], stdin=file.from_start())
        assert said == b"20000\n"
        assert file.start(4) == b"mine"


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "device", "link to a pipe"])
def test_what_a_person_names_is_a_file_or_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    if "pipe" in kind:
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    else:
        path = Path("/dev/zero")
    if "link" in kind:
        path = tmp_path / "link"
        path.symlink_to(tmp_path / "it")
    with pytest.raises(NotAFileError):
        OpenFile.at(path)
