"""What holds for every test: which are quick, in which order, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

# how long drawing an example and looking at it takes is the machine's, and who else uses it; the
# examples of one test are the same in every run but for `make fuzz`, which draws others
settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="WORKBENCH_FUZZ" not in os.environ,
)
settings.load_profile("any machine")

# compiled kernels survive between test runs; set before torch is imported by any test
os.environ.setdefault(
    "TORCHINDUCTOR_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "inductor")
)
# a cold cache would have Inductor start a pool of threads, which outlives the test that filled it
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

if threading.current_thread() is threading.main_thread() and (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):
    # a shell without job control has what it starts in the background ignore interrupts, and that
    # is inherited: no process of a test could be interrupted
    signal.signal(signal.SIGINT, signal.default_int_handler)

_GRACE_S = 120.0
"""A first confusion matrix waits for matplotlib to be imported, on a machine that is busy."""
_LASTING = ("workbench-hub",)
"""Threads that outlive a test on purpose: the hub's ends when the last view is gone."""
_LASTING_PROCESSES = ("resource_tracker", "compile_worker", "gmain", "--type=utility")
"""Helpers of Python and of Inductor that a process starts once and keeps, and services that a
browser starts when it likes while a module's fixture keeps it open; they end with it."""
_ROOT = Path(__file__).parent
_SLOW = ("integration", "server", "hub", "gpu")
"""Folders whose tests start kernels, servers, ranks or compilers: `make test` leaves them out."""
_FUZZING_S = 6 * 3600
"""Time limit of a long property test: on a machine that does other things, too, it takes hours."""
_LONGEST = (
    "integration/parallel/test_toggles.py",
    "equivalence/ranks",
    "integration/test_compare.py",
    "integration/test_at_exit.py",
    "integration/parallel",
    "integration/out_of_memory",
    "integration",
)
"""Begun first, so that no process is left alone with a long file at the end."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread of which ``-m "slow and ..."`` or ``"not slow and ..."`` wants nothing.

    To import seven thousand tests takes half a minute, in each of the processes that share them.
    """
    wanted = config.option.markexpr.split(" and ")[0]
    if wanted not in ("slow", "not slow") or _ROOT not in collection_path.parents:
        return None
    if collection_path.relative_to(_ROOT).parts[0] in _SLOW:
        has_wanted = wanted == "slow"
    elif wanted == "not slow" or collection_path.suffix != ".py":
        has_wanted = True
    else:
        has_wanted = "mark.slow" in collection_path.read_text(encoding="utf-8")
    return None if has_wanted else True  # False would have pytest read what it ignores by itself


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, and put files in order: the longest first, or as WORKBENCH_ORDER says.

    ``WORKBENCH_ORDER=7`` shuffles the files by that seed: no test may need another one before it.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
        if item.path.relative_to(_ROOT).parts[0] in _SLOW:
            item.add_marker("slow")
        if item.get_closest_marker("fuzz"):
            item.add_marker(pytest.mark.timeout(_FUZZING_S))
    order = sorted(files, key=_length)
    if seed := os.environ.get("WORKBENCH_ORDER"):
        random.Random(seed).shuffle(order)
    items[:] = [item for path in order for item in files[path]]


def pytest_report_header() -> str:
    """The order of the files, where it was drawn."""
    seed = os.environ.get("WORKBENCH_ORDER")
    return f"files in random order: WORKBENCH_ORDER={seed}" if seed else ""


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what was imported and collected until here.

    A million objects that stay: to walk them takes longer than most tests, and many collect.
    """
    gc.collect()
    gc.freeze()
    services = sys.modules.get("workbench.experiment.services")
    if services is not None:  # fixtures of a module make experiments before any of a test's
        # the function itself: a frame of a test's would be shown as a user's own code
        mirror = importlib.import_module("workbench.parallel.session.mirror")
        services.provide(services.Services(send=mirror.send))


def _length(path: Path) -> int:
    name = path.relative_to(_ROOT).as_posix()
    return next((at for at, one in enumerate(_LONGEST) if name.startswith(one)), len(_LONGEST))


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Processes that have imported torch already."""
    import torch

    from tests.fork_server import ForkServer
    from workbench.parallel.launch import worker_processes

    before = torch.get_num_threads()
    torch.set_num_threads(1)  # ranks share them
    server = ForkServer(worker_processes._environment(2))
    torch.set_num_threads(before)
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _whole_experiments(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the panel's own tests an experiment is what a person has; in others it is bare.

    A bare one has no writer, no place in the hub and no first captures
    (`workbench.experiment.services`).
    """
    services = sys.modules.get("workbench.experiment.services")
    if services is None or "panel" not in request.path.parts:
        yield
        return
    with services.only(None):
        yield


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread it must have ended, a child process, or a zombie.

    A zombie is a child that ended and that nobody waits for; in a kernel it stays for good.
    """
    threads, children = set(threading.enumerate()), _children()
    yield
    begun = time.monotonic()
    collect_at = 0.0
    while left := _left(threads, children):
        waited = time.monotonic() - begun
        if waited > _GRACE_S:
            pytest.fail(f"the test left behind: {', '.join(left)}")
        if waited >= collect_at:  # what ends with an experiment: that may be in a circle
            gc.collect()
            # not at every look: with torch loaded it takes as long as what is waited for
            collect_at = 2 * (time.monotonic() - begun) + 0.1
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
    """What this process has started, and what that has; asked for twice by every test."""
    if not Path("/proc/self/task", str(threading.get_native_id()), "children").exists():
        return {child.pid for child in psutil.Process().children(recursive=True)}
    found, unseen = set[int](), [os.getpid()]
    while unseen:
        for file in Path("/proc", str(unseen.pop()), "task").glob("*/children"):
            with contextlib.suppress(OSError):  # it has ended
                unseen += (pids := [int(pid) for pid in file.read_text().split()])
                found.update(pids)
    return found


def _name(pid: int, before: set[int]) -> str:
    """What is said of a child that must not be there, else ``""``.

    What a process of ``before`` has started is its own: a server that a fixture keeps for many
    tests keeps its kernels and dashboards.
    """
    try:
        process = psutil.Process(pid)
        if any(parent.pid in before for parent in process.parents()):
            return ""
        if process.status() == psutil.STATUS_ZOMBIE:
            # a child of a child is waited for by it, or by init once that is gone
            return f"zombie {pid} ({process.name()})" if process.ppid() == os.getpid() else ""
        command = " ".join(process.cmdline())
    except psutil.Error:
        return ""
    return "" if any(word in command for word in _LASTING_PROCESSES) else f"{pid}: {command[:120]}"
