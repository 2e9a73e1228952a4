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
    opening,
    read_regular,
)


def no_file(kind: str, folder: Path) -> Path:
    """Something that is no regular file: a pipe, a folder, a socket or a device."""
    path = folder / "it"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    else:
        path = Path("/dev/zero")
    return path


@pytest.mark.parametrize("kind", ["pipe", "link", "broken link", "folder", "socket", "device"])
def test_only_a_regular_file_is_opened_and_nothing_is_waited_for(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("of somebody")
    if "link" in kind:
        path = tmp_path / "it"
        path.symlink_to(tmp_path / ("nothing" if kind == "broken link" else "file"))
    else:
        path = no_file(kind, tmp_path)
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


def test_what_is_refused_below_a_folder_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("pipe", "link/pipe"):
        with pytest.raises(NotAFileError) as error:
            open_beneath(tmp_path, tmp_path / name)
        assert error.value.filename == str(tmp_path / name)


@pytest.mark.parametrize("can", [True, False], ids=["by folders", "by name"])
def test_where_folders_cannot_be_opened_one_in_the_other_it_is_the_same(
    can: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, and on macOS behind a folder that may be entered and not listed."""
    monkeypatch.setattr(opening, "_CAN_DESCEND", can)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(b"mine")
    (tmp_path / "away").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "in" / "file")
    with open_beneath(tmp_path, "in/file") as file:
        assert file.read() == b"mine"
    for name in ("away/file", "in/link", "in"):
        with pytest.raises(NotAFileError):
            open_beneath(tmp_path, name)
    with pytest.raises(FileNotFoundError):
        open_beneath(tmp_path, "in/none")


def test_a_name_is_shown_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b]52;c;\x07"
    path.touch()
    with OpenFile.at(path) as file:
        assert file.name == "a\N{REPLACEMENT CHARACTER}]52;c;\N{REPLACEMENT CHARACTER}"


def test_an_open_file_stays_the_one_that_was_looked_at(tmp_path: Path) -> None:
    path, link = tmp_path / "it", tmp_path / "link"
    path.write_bytes(b"mine" * 5_000)
    link.symlink_to(path)
    with OpenFile.at(link) as file:
        assert file.first_bytes(2) == b"mi"
        path.unlink()
        path.write_bytes(b"another")
        link.unlink()
        assert (file.size, file.name) == (20_000, "link")
        assert file.first_bytes(1 << 40) == b"mine" * 5_000
        # another process reads it from its first byte, and this one again
        say = "import sys; print(len(sys.stdin.buffer.read()))"
        said = subprocess.check_output([sys.executable, "-c", say], stdin=file.rewound())
        assert said == b"20000\n"
        assert file.first_bytes(4) == b"mine"


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "device", "link to a pipe"])
def test_what_a_person_names_is_a_file_or_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = no_file(kind.removeprefix("link to a "), tmp_path)
    if "link" in kind:
        path = tmp_path / "link"
        path.symlink_to(tmp_path / "it")
    with pytest.raises(NotAFileError):
        OpenFile.at(path)
