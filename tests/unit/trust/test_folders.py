from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.strangers import STRANGER, as_stranger, needs_a_stranger, shared_folder
from workbench.trust import HeldFolder, is_of_this_user, made_private, stranger_in

ACCESS_LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, may, who)
    for tag, may, who in (
        (0x01, 7, 0xFFFFFFFF), (0x02, 7, STRANGER), (0x04, 5, 0xFFFFFFFF), (0x10, 7, 0xFFFFFFFF),
        (0x20, 5, 0xFFFFFFFF),
    )
)  # fmt: skip
"""As Linux keeps it (linux/posix_acl_xattr.h): the second user may do everything."""


def made(path: Path, mode: int) -> Path:
    path.mkdir()
    path.chmod(mode)
    return path


def test_a_folder_of_ones_own_is_nobody_elses(tmp_path: Path) -> None:
    assert stranger_in(tmp_path) is None
    assert stranger_in(made(tmp_path / "own", 0o755)) is None


def test_who_may_write_to_it_or_above_it_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with shared_folder(0o755) as top:
        everybodys = made(top / "everybody", 0o777)
        own = made(everybodys / "own", 0o755)
        assert str(stranger_in(own)) == f"everybody may write to {everybodys}"
        everybodys.chmod(0o1777)  # as /tmp is: nobody can move what is not theirs
        assert stranger_in(own) is None
        assert str(stranger_in(everybodys)) == f"everybody may write to {everybodys}"
        top.chmod(0o700)  # nobody else gets there
        assert stranger_in(everybodys) is None


def test_a_file_is_looked_at_where_others_can_reach_it(tmp_path: Path) -> None:
    with shared_folder(0o755) as top:
        (top / "file").write_text("")
        (top / "file").chmod(0o666)
        assert str(stranger_in(top, "file")) == f"everybody may write to {top / 'file'}"
        assert stranger_in(top) is None
        assert stranger_in(top, "not there") is None
        top.chmod(0o700)
        assert stranger_in(top, "file") is None, "a file of mode 666 in a folder of mode 700"


@needs_a_stranger
def test_a_group_counts_where_it_has_other_members() -> None:
    with shared_folder(0o775) as top:
        os.chown(top, 0, 0)  # umask 002, and a group of one's own
        assert stranger_in(top) is None
        os.chown(top, 0, STRANGER)
        assert str(stranger_in(top)) == f"group {STRANGER} may write to {top}"
        os.chown(top, STRANGER, 0)
        assert str(stranger_in(top)) == f"user {STRANGER} may write to {top}"


@needs_a_stranger
def test_an_access_list_is_seen() -> None:
    with shared_folder(0o755) as top:
        try:
            os.setxattr(top, "system.posix_acl_access", ACCESS_LIST)
        except (AttributeError, OSError) as error:
            pytest.skip(f"no access lists here: {error}")
        assert top.stat().st_mode & 0o777 == 0o775, "as if its own group might write"
        assert stranger_in(top) is not None


@needs_a_stranger
def test_in_a_container_the_user_has_no_name() -> None:
    """Its folders are of its number, and of the group that it runs as, writable by umask 002."""
    with shared_folder(0o711) as above:  # which may be entered, and not listed
        top = made(above / "home", 0o775)
        os.chown(top, STRANGER, STRANGER)
        code = "import grp, pwd, sys; sys.path.insert(0, sys.argv[2])\n"
        code += "from workbench.trust import stranger_in\n"
        # imported before it becomes another: the package may lie where only root can read
        program = (
            f"{code}import os\nos.setgroups([]); os.setresgid(*3*({STRANGER},)); "
            f"os.setresuid(*3*({STRANGER},))\nprint(stranger_in(sys.argv[1]))"
        )
        root = Path(__file__).parents[3]
        done = subprocess.run(
            [sys.executable, "-c", program, str(top), str(root)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == "None"


@pytest.mark.skipif(sys.platform != "linux", reason="an open folder has a name on Linux alone")
def test_a_folder_that_is_held_is_found_whoever_moves_it(tmp_path: Path) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    held = HeldFolder(tmp_path / "runs" / "one")
    (held.path / "mine").write_text("mine")
    (tmp_path / "runs").rename(tmp_path / "away")
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "mine").write_text("theirs")
    assert (held.path / "mine").read_text() == "mine"
    (held.path / "later").write_text("")
    assert (tmp_path / "away" / "one" / "later").exists()
    assert held.shown == tmp_path / "runs" / "one"


def test_what_is_held_is_given_back(tmp_path: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("open files are counted in /proc")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        HeldFolder(tmp_path)
        stranger_in(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@needs_a_stranger
def test_the_second_user_of_these_tests_is_one() -> None:
    with shared_folder() as top:
        (top / "own").mkdir(mode=0o700)
        said = as_stranger(
            "print(os.getuid(), os.access(sys.argv[1], os.R_OK), os.access(sys.argv[2], os.W_OK))",
            top / "own",
            top,
        )
        assert said.split() == [str(STRANGER), "False", "True"]


def test_a_folder_for_ones_own_is_made_whatever_the_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        made_private(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    for name in ("a", "a/b", "a/b/c"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
    with shared_folder(0o755) as top:
        everybodys = made(top / "open", 0o777)
        with pytest.raises(PermissionError, match="everybody may write"):
            made_private(everybodys)


@needs_a_stranger
def test_a_folder_that_somebody_put_in_its_place_is_told_from_ones_own(tmp_path: Path) -> None:
    own = made(tmp_path / "own", 0o700)
    assert is_of_this_user(own)
    assert list(own.iterdir()) == []
    os.chown(own, STRANGER, STRANGER)
    assert not is_of_this_user(own)


def test_a_home_on_a_link_is_ones_own(tmp_path: Path) -> None:
    made(tmp_path / "data", 0o755)
    (tmp_path / "home").symlink_to(tmp_path / "data")
    assert stranger_in(tmp_path / "home") is None
    held = HeldFolder(tmp_path / "home")
    (held.path / "file").touch()
    assert (tmp_path / "data" / "file").exists()
    assert held.shown == tmp_path / "home"
    assert made_private(tmp_path / "home" / "cache").is_dir()


@pytest.mark.parametrize("what", ["a link", "another folder of the user", "one of another user"])
def test_what_takes_the_place_of_a_new_folder_is_not_used(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written to, and removed with all that was in it."""
    home, mkdir = made(tmp_path / "home", 0o700), os.mkdir
    (home / "precious").write_text("mine")

    def swapped(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        if what == "a link":
            (tmp_path / name).rmdir()
            (tmp_path / name).symlink_to(home)
        elif what == "another folder of the user":
            (tmp_path / name).rmdir()
            home.rename(tmp_path / name)
        elif os.geteuid() == 0:
            os.chown(tmp_path / name, STRANGER, STRANGER)
        else:
            pytest.skip("needs to be root, to act as a second user")

    monkeypatch.setattr(os, "mkdir", swapped)
    with pytest.raises(OSError, match=r"another folder in its place|Not a directory|symbolic link"):
        HeldFolder.made(tmp_path, "1")
    monkeypatch.undo()
    assert next(tmp_path.rglob("precious")).read_text() == "mine"


def test_a_new_folder_is_private_and_held(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        held = HeldFolder.made(tmp_path, "1")
    finally:
        os.umask(before)
    assert held.shown == tmp_path / "1"
    assert held.shown.stat().st_mode & 0o777 == 0o700
    assert list(held.path.iterdir()) == []
    with pytest.raises(FileExistsError):
        HeldFolder.made(tmp_path, "1")
