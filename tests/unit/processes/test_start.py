"""An interrupt in the worst of moments loses no child process."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from workbench.processes import interrupts_deferred, run_process

ENDLESS = [sys.executable, "-c", "import time; time.sleep(600)"]


def children() -> set[int]:
    return {one.pid for one in psutil.Process().children()}


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done: list[str] = []
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with interrupts_deferred():
            os.kill(os.getpid(), signal.SIGINT)
            _thread.interrupt_main()
            done.append("after the signals")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["after the signals"]
    assert signal.getsignal(signal.SIGINT) is before


def test_blocks_may_stand_in_each_other() -> None:
    done: list[str] = []

    def work() -> None:
        with interrupts_deferred():
            with interrupts_deferred():
                _thread.interrupt_main()
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]


def test_other_threads_and_other_handlers_are_left_alone() -> None:
    handlers: list[Any] = []

    def look() -> None:
        with interrupts_deferred():
            handlers.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        look()
    finally:
        signal.signal(signal.SIGINT, before)
    assert handlers == [before, signal.SIG_IGN]


def test_an_interrupt_right_after_the_fork_leaves_no_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The moment is made: the system call itself is followed by an interrupt."""
    fork, forked = subprocess._fork_exec, list[int]()  # type: ignore[attr-defined]

    def interrupted(*arguments: Any) -> int:
        forked.append(fork(*arguments))
        _thread.interrupt_main()
        return forked[0]

    before = children()
    monkeypatch.setattr(subprocess, "_fork_exec", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_process(ENDLESS, timeout=600)
    monkeypatch.undo()
    assert len(forked) == 1
    assert children() == before, "neither at work nor a zombie"


def test_a_child_that_takes_too_long_is_killed() -> None:
    before = children()
    with pytest.raises(subprocess.TimeoutExpired):
        run_process(ENDLESS, timeout=0.01, stdin=subprocess.DEVNULL)
    assert children() == before


def test_what_a_child_says_and_how_it_ends_is_given(tmp_path: Path) -> None:
    said = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    command = [sys.executable, "-c", said]
    done = run_process(command, timeout=600, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    with (tmp_path / "said").open("wb") as file:
        assert run_process(command, timeout=600, stdout=file, stderr=file).returncode == 3
    assert sorted((tmp_path / "said").read_text().split()) == ["err", "out"]


def test_a_program_that_is_not_there_is_said_so() -> None:
    with pytest.raises(FileNotFoundError):
        run_process(["/nowhere/program"], timeout=1)
