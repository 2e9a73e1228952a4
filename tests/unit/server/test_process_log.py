from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from workbench.server import process_log
from workbench.server.process_log import ProcessLog


def printed(code: str, path: Path) -> ProcessLog:
    popen = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    log = ProcessLog(popen, path)
    popen.wait(300)
    log.join(300)
    return log


def test_its_last_lines_are_known_and_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log"
    assert printed("", path).last_lines() == ""
    log = printed("for at in range(100): print('line', at)", path)
    assert log.last_lines().splitlines() == [f"line {at}" for at in range(92, 100)]
    text = path.read_text()
    assert text.count("--- 20") == 2, "one that prints later goes on behind it"
    assert text.endswith("line 98\nline 99\n")
    assert path.stat().st_mode & 0o077 == 0


def test_the_file_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_log, "_MOST_BYTES", 20_000)
    path = tmp_path / "log"
    code = "for at in range(20_000): print('line', at, flush=not at % 50)"
    log = printed(code, path)
    assert 9_000 < path.stat().st_size <= 20_000
    assert path.read_text().endswith("line 19998\nline 19999\n")
    assert log.last_lines().endswith("line 19999")


def test_a_file_that_cannot_be_written_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("mine")
    assert printed("print('x' * 1_000_000)", tmp_path / "link").last_lines().endswith("xxx")
    assert (tmp_path / "precious").read_text() == "mine"
