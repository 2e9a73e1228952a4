"""A child is ended with all it starts, and its number is never used once it may be another's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from workbench.processes import Group

LEADER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep({seconds})
"""
Start = Callable[[float], tuple[subprocess.Popen[bytes], Group, psutil.Process]]


@pytest.fixture
def start() -> Generator[Start]:
    """A leader that ends after so many seconds, its group, and what it has started."""
    begun: list[Group] = []

    def begin(seconds: float) -> tuple[subprocess.Popen[bytes], Group, psutil.Process]:
        popen = subprocess.Popen(
            [sys.executable, "-c", LEADER.format(seconds=seconds)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        group = Group(popen)
        begun.append(group)
        assert popen.stdout is not None
        with popen.stdout as output:
            return popen, group, psutil.Process(int(output.readline()))

    yield begin
    for group in begun:
        group.kill()
        wait_until(lambda one=group: not one.alive)


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE  # nobody here is its parent
    except psutil.NoSuchProcess:
        return True


def test_all_of_a_group_are_ended(start: Start) -> None:
    _popen, group, child = start(600)
    assert group.alive
    assert group.status is None
    group.kill()
    wait_until(lambda: not group.alive)
    assert group.status == -signal.SIGKILL
    wait_until(lambda: is_gone(child))


def test_what_a_process_leaves_behind_ends_with_it(start: Start) -> None:
    _popen, group, child = start(0)
    wait_until(lambda: not group.alive)
    assert group.status == 0
    wait_until(lambda: is_gone(child))


def test_no_signal_is_sent_by_a_number_that_may_be_anothers(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    _popen, group, _child = start(0)
    wait_until(lambda: not group.alive)
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda *what: sent.append(what))
    group.signal(signal.SIGTERM)
    group.kill()
    assert group.status == 0
    assert sent == []


def test_a_process_that_nobody_asked_for_yet_is_still_its_number(
    start: Start, tmp_path: Path
) -> None:
    """It has ended, and what it started has not: as a zombie it keeps its number."""
    popen, group, child = start(0)
    wait_until(lambda: psutil.Process(popen.pid).status() == psutil.STATUS_ZOMBIE)
    assert not is_gone(child)
    group.signal(signal.SIGKILL)
    wait_until(lambda: is_gone(child))
    assert group.status == 0
