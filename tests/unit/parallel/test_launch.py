from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from workbench.parallel import launch


def met(root: Path, name: str, pid: int, created: float) -> Path:
    meeting = root / f"workbench-ranks-{name}"
    meeting.mkdir()
    launch._introduce_at(meeting / "launcher.json", pid, created, 2, str(meeting))
    (meeting / "rendezvous").touch()
    return meeting


def test_what_nobody_meets_in_any_more_is_removed(
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
    begun.mkdir()
    for number, text in enumerate(("{}", "[]", "7", "\0", '{"pid": "x", "host": null}')):
        other = tmp_path / f"workbench-ranks-other{number}"
        other.mkdir()
        (other / "launcher.json").write_text(text)
    launch._sweep()
    assert len(list(tmp_path.glob("*-other?"))) == 5
    assert not over.exists()
    assert not reused.exists()
    assert all(path.is_dir() for path in (alive, elsewhere, begun))
