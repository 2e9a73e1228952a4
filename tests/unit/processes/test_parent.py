"""A process whose starter ended while it was still importing knows that it is alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from workbench.processes import PARENT, is_orphaned, parent

ASKS_LATE = """
import os, time
from workbench.processes import PARENT, is_orphaned, parent
while os.getppid() == int(os.environ[PARENT]):
    time.sleep(0.01)
told = parent()
print(is_orphaned(told), flush=True)
"""
MIDDLE = """
import os, subprocess, sys
from workbench.processes import PARENT
os.environ[PARENT] = str(os.getpid())
subprocess.Popen([sys.executable, "-c", sys.argv[1]])
os._exit(0)
"""


def test_a_late_query_of_the_parent_reports_that_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    done = subprocess.run(
        [sys.executable, "-c", MIDDLE, ASKS_LATE], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n", done.stderr


def test_the_number_is_what_the_starter_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARENT, "12345")
    assert parent() == 12345
    assert PARENT not in os.environ
    assert parent() == os.getppid(), "a child of ours is started by us"
    assert is_orphaned(12345)
    assert not is_orphaned(os.getppid())
