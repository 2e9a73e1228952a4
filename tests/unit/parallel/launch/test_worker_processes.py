from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.strangers import as_stranger, needs_a_stranger, shared_folder
from workbench.parallel.launch import worker_processes


def met(root: Path, name: str, pid: int, created: float) -> Path:
    meeting = root / f"workbench-ranks-{name}"
    meeting.mkdir(mode=0o700)
    said = {"pid": pid, "created": created, "host": platform.node(), "ranks": 2}
    (meeting / "launcher.json").write_text(json.dumps(said))
    (meeting / "rendezvous").touch()
    return meeting


def test_what_another_user_put_there_is_left_out_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a temporary folder that all users share: it stopped every parallel run."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = ("pipe", "deep", "endless", "large", "link", "open")
    folders = {name: tmp_path / f"workbench-ranks-{name}" for name in names}
    for folder in folders.values():
        folder.mkdir(mode=0o700)
    os.mkfifo(folders["pipe"] / "launcher.json")
    (folders["deep"] / "launcher.json").write_text("[" * 200_000)
    (folders["endless"] / "launcher.json").symlink_to("/dev/zero")
    (folders["large"] / "launcher.json").write_bytes(b" " * (1 << 20))
    (folders["link"] / "launcher.json").symlink_to(tmp_path / "elsewhere")
    said = {"pid": 1 << 22, "created": 0.0, "host": platform.node(), "ranks": 2}
    (tmp_path / "elsewhere").write_text(json.dumps(said))
    (folders["open"] / "launcher.json").write_text(json.dumps(said))
    folders["open"].chmod(0o777)  # as if everybody could have said so
    (tmp_path / "workbench-ranks-file").touch()
    (tmp_path / "workbench-ranks-symlink").symlink_to(folders["open"])
    before = sorted(tmp_path.rglob("*"))
    worker_processes._sweep()
    assert sorted(tmp_path.rglob("*")) == before


MEETINGS = """
root, node, victim = sys.argv[1:4]
def made(name, mode):
    folder = os.path.join(root, "workbench-ranks-" + name)
    os.mkdir(folder)
    os.chmod(folder, mode)
    return os.path.join(folder, "launcher.json")
for mode in (0o700, 0o755, 0o777):
    os.mkfifo(made("pipe%o" % mode, mode))
    os.symlink("/dev/zero", made("endless%o" % mode, mode))
    with open(made("deep%o" % mode, mode), "w") as file:
        file.write("[" * 200_000)
    with open(made("infinite%o" % mode, mode), "w") as file:
        file.write('{"pid": Infinity, "created": NaN, "host": "%s", "ranks": 2}' % node)
    with open(made("said%o" % mode, mode), "w") as file:
        file.write('{"pid": 4194304, "created": 0.0, "host": "%s", "ranks": 2}' % node)
os.symlink(victim, os.path.join(root, "workbench-ranks-victim"))
"""
"""What stops whoever reads it, and what would have a folder removed."""


@needs_a_stranger
def test_what_a_second_user_put_there_is_left_out_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stopped every parallel run of everybody."""
    victim = met(tmp_path, "mine", os.getpid(), psutil.Process().create_time())
    with shared_folder(0o1777) as shared:
        as_stranger(MEETINGS, shared, platform.node(), victim)
        monkeypatch.setattr(tempfile, "tempdir", str(shared))
        before = sorted(shared.rglob("*"))
        worker_processes._sweep()
        assert sorted(shared.rglob("*")) == before
        assert len(before) == 31
    assert (victim / "launcher.json").exists()


def test_a_rendezvous_folder_without_processes_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as gone:
        created = psutil.Process(gone.pid).create_time()
        gone.kill()
    mine = psutil.Process().create_time()
    over = met(tmp_path, "over", gone.pid, created)
    reused = met(tmp_path, "reused", os.getpid(), mine - 100)
    alive = met(tmp_path, "alive", os.getpid(), mine)
    elsewhere = met(tmp_path, "elsewhere", gone.pid, created)
    said = (elsewhere / "launcher.json").read_text().replace(platform.node(), "another-machine")
    (elsewhere / "launcher.json").write_text(said)
    begun = tmp_path / "workbench-ranks-begun"
    begun.mkdir(mode=0o700)
    for number, text in enumerate(("{}", "[]", "7", "\0", '{"pid": "x", "host": null}')):
        other = tmp_path / f"workbench-ranks-other{number}"
        other.mkdir(mode=0o700)
        (other / "launcher.json").write_text(text)
    worker_processes._sweep()
    assert len(list(tmp_path.glob("*-other?"))) == 5
    assert not over.exists()
    assert not reused.exists()
    assert all(path.is_dir() for path in (alive, elsewhere, begun))
