from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.trust import Seal, SealError
from workbench.trust.seal import KEY, SESSION, key_file

ROOT = Path(__file__).parents[3]


def test_what_was_sealed_is_read_again(tmp_path: Path) -> None:
    seal, path = Seal.new(), tmp_path / "file"
    seal.write(path, b"data\n\0", "payload")
    assert seal.read(path, "payload") == b"data\n\0"
    seal.write_json(path, {"a": [1, None, "ä"]}, "job")
    assert seal.read_json(path, "job") == {"a": [1, None, "ä"]}
    assert [one.name for one in tmp_path.iterdir()] == ["file"], "a draft was left"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b"x",
        lambda data: data[:-1],
        lambda data: data[:90] + bytes([data[90] ^ 1]) + data[91:],
        lambda data: data.replace(b"sealed/1", b"sealed/2"),
        lambda data: data[84:],
        lambda data: b"",
    ],
    ids=["more", "less", "a bit", "its kind", "without", "empty"],
)
def test_what_somebody_changed_is_not(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    seal, path = Seal.new(), tmp_path / "file"
    seal.write(path, b"data of some length", "payload")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SealError, match="someone else may have written it") as error:
        seal.read(path, "payload")
    assert error.value.filename == str(path)
    assert isinstance(error.value, PermissionError)


def test_it_is_for_one_purpose_one_session_and_one_key(tmp_path: Path) -> None:
    seal, path = Seal.new(), tmp_path / "file"
    seal.write(path, b"data", "payload")
    for other, what in (
        (seal, "checkpoint"),
        (Seal.new(), "payload"),
        (seal.of_no_session, "payload"),
        (Seal(b"x" * 32, seal.session), "payload"),
    ):
        with pytest.raises(SealError):
            other.read(path, what)
    assert seal.of_no_session.for_session(seal.session).read(path, "payload") == b"data"
    assert Seal.unchecked().read(path, "anything") == b"data"


def test_a_draft_is_not_written_through_a_link(tmp_path: Path) -> None:
    """Whoever could guess its name would have a file of the user's overwritten."""
    seal, path, victim = Seal.new(), tmp_path / "file", tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    seal.write(path, b"data", "payload")
    assert victim.read_text() == "precious"
    assert not path.is_symlink()


def in_a_process(code: str, home: Path, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in (KEY, SESSION)}
    kept.pop("XDG_STATE_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", f"from workbench.trust.seal import *\nimport os\n{code}"],
        env={**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), **variables},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


WHO = """
seal = Seal.of_this_process()
print(seal.sealed(b"", "").hex(), is_kept(), os.environ.get(KEY))
"""


def test_the_key_is_the_users_and_nobody_elses(tmp_path: Path) -> None:
    first = in_a_process(WHO, tmp_path)
    path = tmp_path / ".local/state/workbench/key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    assert path.stat().st_size == 32
    assert in_a_process(WHO, tmp_path) == first
    assert first.split()[1:] == ["True", "None"]
    assert {one.name for one in path.parent.iterdir()} == {"key", "key.lock"}
    path.chmod(0o644)  # others may have read it
    assert in_a_process(WHO, tmp_path).split()[1] == "False"


def test_where_none_can_be_kept_the_process_has_its_own(tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("in the way")
    first, second = in_a_process(WHO, tmp_path), in_a_process(WHO, tmp_path)
    assert first.split()[1] == second.split()[1] == "False"
    assert first.split()[0] != second.split()[0]


def test_a_process_is_handed_the_key_and_hands_it_to_nobody(tmp_path: Path) -> None:
    seal = Seal.new()
    said = in_a_process(WHO, tmp_path, **seal.to_hand_on()).split()
    assert said[0] == seal.sealed(b"", "").hex()
    assert said[2] == "None"


NO_LINKS = (
    "import os\ndef refused(*_): raise PermissionError(1, 'no hard links')\nos.link = refused"
)
"""As on many network and FUSE mounts."""


@pytest.mark.parametrize("found", ["none", "half a key"])
@pytest.mark.parametrize("links", ["", NO_LINKS], ids=["hard links", "none of them"])
def test_many_that_begin_at_once_have_one_key(found: str, links: str, tmp_path: Path) -> None:
    path = tmp_path / ".local/state/workbench/key"
    if found != "none":
        path.parent.mkdir(parents=True)
        path.write_bytes(b"of a disk that was full")
        path.chmod(0o600)
    code = (
        f"{links}\nfrom workbench.trust import Seal\nfrom workbench.trust.seal import is_kept\n"
        "input()\nprint(Seal.of_this_process().sealed(b'', '').hex(), is_kept())"
    )
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": ""}
    several = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(8)
    ]
    for one in several:
        assert one.stdin is not None
        one.stdin.write(b"\n")
        one.stdin.flush()
    said = {one.communicate()[0] for one in several}
    assert len(said) == 1
    assert said.pop().endswith(b"True\n")
    assert {one.name for one in path.parent.iterdir()} == {"key", "key.lock"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_folders_of_a_key_are_nobody_elses_whatever_the_umask(tmp_path: Path) -> None:
    in_a_process("os.umask(0)\n" + WHO, tmp_path)
    for folder in (".local", ".local/state", ".local/state/workbench"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_the_state_folder_may_be_in_another_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert key_file() == tmp_path / "workbench" / "key"
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    assert key_file().is_relative_to(Path.home())
