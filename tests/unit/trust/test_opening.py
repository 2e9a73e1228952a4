from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from workbench.trust import NotAFileError, TooLargeError, open_beneath, open_regular, read_regular


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
