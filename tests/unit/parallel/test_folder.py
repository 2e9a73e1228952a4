from __future__ import annotations

from pathlib import Path

from workbench.parallel.folder import Folder, Job

SUMMARY = """\
============================================================
workbench.parallel.worker FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_19:33:19
  host      : localhost
  rank      : {rank} (local_rank: {rank})
  exitcode  : -9 (pid: 17293)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 17293
============================================================
"""


def test_the_launcher_names_who_failed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.failed == set()
    folder.log.write_text("loss 0.3, rank      : 7\n" + SUMMARY.format(rank=1))
    assert folder.failed == {1}


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
