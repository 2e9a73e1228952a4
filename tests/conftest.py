"""What holds for every test: nothing is left behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

# compiled kernels survive between test runs; set before torch is imported by any test
os.environ.setdefault(
    "TORCHINDUCTOR_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "inductor")
)
# a cold cache would have Inductor start a pool of threads, which outlives the test that filled it
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

_GRACE_S = 20.0
"""A first confusion matrix waits for matplotlib to be imported, on a machine that is busy."""
_LASTING = ("workbench-hub",)
"""Threads that outlive a test on purpose: the hub's ends when the last view is gone."""
_LASTING_PROCESSES = ("resource_tracker", "compile_worker", "gmain", "--type=utility")
"""Helpers of Python and of Inductor that a process starts once and keeps, and services that a
browser starts when it likes while a module's fixture keeps it open; they end with it."""


@pytest.fixture(autouse=True)
def _bare_experiments(request: pytest.FixtureRequest) -> Iterator[None]:
    """Outside the panel's own tests an experiment is bare, whatever was imported before.

    Importing `workbench.panel.assembly` gives every later experiment its writer, its place in the
    hub and its first captures.
    """
    package = sys.modules.get("workbench.experiment")
    if package is None or "panel" in request.path.parts:
        yield
        return
    hooks, package.assembly_hooks[:] = list(package.assembly_hooks), []
    yield
    package.assembly_hooks[:] = hooks


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread it must have ended, or a child process."""
    threads, children = set(threading.enumerate()), _children()
    yield
    deadline = time.monotonic() + _GRACE_S
    while left := _left(threads, children):
        if time.monotonic() > deadline:
            pytest.fail(f"the test left behind: {', '.join(left)}")
        gc.collect()
        time.sleep(0.02)


def _left(threads: set[threading.Thread], children: set[int]) -> list[str]:
    ours = [
        thread.name
        for thread in set(threading.enumerate()) - threads
        if thread.is_alive() and (not thread.daemon or thread.name.startswith("workbench-"))
    ]
    left = [name for name in ours if not name.startswith(_LASTING)]
    return left + [name for pid in _children() - children if (name := _name(pid, children))]


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def _name(pid: int, before: set[int]) -> str:
    """The command of a live child that must not be there, else ``""``.

    What a process of ``before`` has started is its own: a server that a fixture keeps for many
    tests keeps its kernels and dashboards.
    """
    try:
        process = psutil.Process(pid)
        command = " ".join(process.cmdline())
        is_theirs = any(parent.pid in before for parent in process.parents())
        if is_theirs or process.status() == psutil.STATUS_ZOMBIE:
            return ""
    except psutil.Error:
        return ""
    return "" if any(word in command for word in _LASTING_PROCESSES) else f"{pid}: {command[:120]}"
