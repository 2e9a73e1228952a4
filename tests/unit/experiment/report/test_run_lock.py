from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from tests.integration.scripts import environment
from workbench.experiment.report.run_lock import InUseError, RunLock

HOLDER = """
import os, sys, time
from pathlib import Path
from workbench.experiment.report.run_lock import RunLock
lock = RunLock(Path(sys.argv[1]))
if os.fork():
    print(os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)  # as a worker of a loader that outlives its kernel
"""


def test_a_second_one_is_told_whose_it_is(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    with pytest.raises(InUseError, match="in use by another experiment of this process"):
        RunLock(tmp_path)
    first.release()
    RunLock(tmp_path).release()


def test_one_that_is_forgotten_is_released(tmp_path: Path) -> None:
    RunLock(tmp_path)
    RunLock(tmp_path).release()


def test_it_ends_with_its_process_although_a_child_of_it_lives_on(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    script, said, err = tmp_path / "holder.py", tmp_path / "said", tmp_path / "err"
    script.write_text(HOLDER)
    os.mkfifo(said)
    process = fork_server.script(script, str(tmp_path), env=environment(), stdout=said, stderr=err)
    try:
        with said.open() as lines:
            pid = lines.readline().strip()
        with pytest.raises(InUseError, match=f"process {pid} on .* since 20"):
            RunLock(tmp_path)
        process.kill()
        process.wait()
        RunLock(tmp_path).release()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("text", ["", "{}", '{"pid": "x"}', "[1", '{"pid":1,"host":2,"since":1e9}'])
def test_a_holder_that_does_not_say_who_it_is(tmp_path: Path, text: str) -> None:
    lock = RunLock(tmp_path)
    (tmp_path / "run.lock").write_text(text)
    with pytest.raises(InUseError, match="in use by"):
        RunLock(tmp_path)
    lock.release()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    mine, run = tmp_path / "mine", tmp_path / "run"
    mine.write_text("precious")
    run.mkdir()
    (run / "run.lock").symlink_to(mine)
    RunLock(run).release()
    assert mine.read_text() == "precious"
