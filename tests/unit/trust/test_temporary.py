from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.strangers import STRANGER, needs_a_stranger, shared_folder
from workbench.trust import own_folders, private_folder, private_socket_folder


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tmp", "state", "runtime"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


def test_it_is_private_and_where_temporary_files_are(tmp_path: Path) -> None:
    made = private_folder("workbench-x-")
    assert made.parent == tmp_path / "tmp"
    assert made.stat().st_mode & 0o777 == 0o700
    assert private_folder("workbench-x-") != made
    assert private_socket_folder("workbench-tb-").parent == tmp_path / "runtime"


def test_where_others_could_move_it_it_is_made_in_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_folder(0o777) as everybodys:
        monkeypatch.setattr(tempfile, "tempdir", str(everybodys))
        assert private_folder("workbench-x-").parent == tmp_path / "state" / "workbench"
        everybodys.chmod(0o1777)  # as /tmp is
        assert private_folder("workbench-x-").parent == everybodys
        everybodys.chmod(0o777)
        (everybodys / "file").touch()
        monkeypatch.setenv("XDG_STATE_HOME", str(everybodys / "file"))
        with pytest.raises(PermissionError, match="set TMPDIR"):
            private_folder("workbench-x-")


def test_a_session_folder_that_others_enter_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "runtime").chmod(0o755)
    assert private_socket_folder("workbench-tb-").parent == tmp_path / "tmp"


def test_ones_own_are_found_again_and_closed(tmp_path: Path) -> None:
    mine = {private_folder("workbench-x-") for _ in range(3)}
    private_folder("other-")
    opened = tmp_path / "tmp" / "workbench-x-open"
    opened.mkdir(mode=0o777)
    opened.chmod(0o777)
    (tmp_path / "tmp" / "workbench-x-link").symlink_to(opened)
    (tmp_path / "tmp" / "workbench-x-file").touch()
    descriptors: list[int] = []
    found = {path for path, at in own_folders("workbench-x-") if not descriptors.append(at)}
    assert found == mine
    for one in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(one)


@needs_a_stranger
def test_those_of_others_are_left_out(tmp_path: Path) -> None:
    theirs = tmp_path / "tmp" / "workbench-x-theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, STRANGER, STRANGER)
    assert list(own_folders("workbench-x-")) == []
