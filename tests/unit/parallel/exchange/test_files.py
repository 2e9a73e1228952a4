from __future__ import annotations

import os
import threading
from pathlib import Path

from workbench.parallel.exchange.files import Folder, Job
from workbench.trust import write_whole

HEAD = """\
============================================================
workbench.parallel.rank.program FAILED
------------------------------------------------------------
Failures:
"""
CAUSE = """\
------------------------------------------------------------
Root Cause (first observed failure):
"""


def failure(rank: int, code: int) -> str:
    return (
        f"[0]:\n  time      : 2026-11-23_19:33:19\n  host      : localhost\n"
        f"  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: 17293) (SIGKILL)\n  error_file: <N/A>\n"
    )


def test_the_launcher_names_who_failed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.failed == set()
    folder.log.write_text("loss 0.3, rank      : 7\n" + HEAD + CAUSE + failure(1, -9))
    assert folder.failed == {1}
    folder.log.write_text(HEAD + failure(0, -15) + CAUSE + failure(1, -9))
    assert folder.failed == {1}, "the launcher ended rank 0"
    folder.log.write_text(HEAD + failure(0, 1) + CAUSE + failure(1, -15))
    assert folder.failed == {0, 1}, "rank 1 was killed"


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for job in (Job("fsdp:2", 30, None), Job("ddp:2", None, 4, save_every_s=None)):
        folder.write_job(job)
        assert folder.read_job() == job


def test_the_newest_whole_checkpoint_is_found(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.latest is None
    for path in (folder.start, folder.last.with_name("last.before"), folder.last):
        path.mkdir()
        before = folder.latest
        (path / "half.distcp").touch()
        assert folder.latest == before
        (path / "rest.pt").touch()
        assert folder.latest == path


def test_a_rank_says_who_it_is_in_one_piece(tmp_path: Path) -> None:
    """Whoever waits for the file reads it the moment it is there."""
    folder = Folder(tmp_path)
    folder.record_pid(1)
    assert int(folder.pid(1).read_text()) == os.getpid()
    assert [path.name for path in tmp_path.iterdir()] == [folder.pid(1).name]

    path, ended, found = tmp_path / "rank-0.report.json", threading.Event(), set[int]()

    def write() -> None:
        for _ in range(200):
            write_whole(path, b"x" * 100_000)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not ended.is_set():
        if path.exists():
            found.add(len(path.read_text()))
    writer.join()
    assert found == {100_000}
