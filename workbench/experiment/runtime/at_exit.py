"""What runs in the background ends before the interpreter does, in a fixed order.

Python stops a daemon thread in the middle of whatever it does once the interpreter is finalized. In
the middle of a torch operation that ends the process with SIGABRT ("terminate called without an
active exception": ``pthread_exit`` unwinds a C++ frame that must not be unwound, python/cpython
issue 87135), and a script that had done all its work ends with a status other than 0. So code that
starts a thread that outlives a call registers here how the thread is ended, in order of dependence:
a run logs until its last step, so its writer is ended after it.

There are two moments. Before Python waits for threads of the user's own, runs end at once if there
are no such threads; if there are, one of them may be waiting for a run, and everything ends after
them, in ``atexit``. From then on no run begins any more (`refuse_to_begin`).

A process that `multiprocessing` has started may end without ``atexit`` (before Python 3.15, if it
was forked), but it waits for its threads: there everything ends before them or as the last of them.

A fork of the process has none of its threads, and its locks are in the state of that moment: it
forgets what the process began, which it must neither end nor write, and ends what it begins itself.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from enum import IntEnum
from importlib import import_module
from multiprocessing import parent_process

from workbench.records.source import shell

log = logging.getLogger("workbench")

_INTERRUPTED = 130
"""Exit status of a program that was ended by an interrupt, as shells report it."""


class EndingError(RuntimeError):
    """Something was about to begin while the program ends."""


class Phase(IntEnum):
    """Phases of the exit, in this order."""

    PREPARATIONS = 0
    """What only prepares something, and threads that serve views."""
    RUNS = 1
    """Runs stop at the next step boundary."""
    WRITERS = 2
    """What the runs have logged is written."""
    GRAPHS = 3
    """Deep graphs are freed."""


_actions: dict[Phase, list[Callable[[], object]]] = {phase: [] for phase in Phase}
_at_once: list[Callable[[], object]] = []
_ending = threading.Event()


def register(phase: Phase, action: Callable[[], object]) -> None:
    """Call ``action`` at exit; it returns once its threads have ended, and may be called again."""
    _actions[phase].append(action)


def register_for_forks(forget: Callable[[], object]) -> None:
    """Call ``forget`` in a fork of this process: nothing that is in progress here is so there."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


def register_for_interrupts(action: Callable[[], object]) -> None:
    """Call ``action`` if the exit is interrupted and nothing is waited for; it must be quick."""
    _at_once.append(action)


def refuse_to_begin() -> None:
    """Refuse what would continue to run while the program ends.

    Raises:
        EndingError: the program ends.
    """
    if _ending.is_set():
        raise EndingError("the program ends: no run begins any more")


def in_a_kernel() -> bool:
    """Whether this process is a Jupyter kernel: shut down from outside, and no one reads output."""
    return getattr(shell(), "kernel", None) is not None


def kernel_ends() -> bool:
    """Whether this process is a kernel whose end is requested: it ends its child processes first.

    Whatever needs them fails from then on: workers that load data and those that compile are among
    them.
    """
    return in_a_kernel() and (_ending.is_set() or bool(getattr(shell(), "exit_now", False)))


def started(thread: threading.Thread) -> bool:
    """Start ``thread``; return False if none can begin.

    Python 3.12.0 and 3.12.1 let none begin once the interpreter ends; and a system has limits.
    """
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def _before_threads_are_waited_for() -> None:
    last = Phase.GRAPHS if parent_process() is not None else Phase.RUNS
    if not (others := _threads_of_its_own()):
        _end(last)
    elif last is Phase.GRAPHS:
        # not a daemon: Python waits for what it ends as well
        started(threading.Thread(target=_end_after, args=(others,), name="workbench-end"))


def _end_after(others: list[threading.Thread]) -> None:
    while others:
        for thread in others:
            thread.join()
        others = _threads_of_its_own()
    _end(Phase.GRAPHS)


def _after_threads_were_waited_for() -> None:
    _end(Phase.GRAPHS)


def _end(up_to: Phase) -> None:
    """End what was registered, phase by phase; a fault in one is logged and stops no other."""
    _ending.set()
    actions = [action for phase in Phase if phase <= up_to for action in _actions[phase]]
    try:
        for action in actions:
            try:
                action()
            except Exception:
                log.exception("a background thread could not be ended")
    except KeyboardInterrupt:
        _exit_at_once(_INTERRUPTED)
    except SystemExit as error:  # as a handler of SIGTERM may raise it
        _exit_at_once(error.code if isinstance(error.code, int) else 1)


def _exit_at_once(status: int) -> None:
    """Exit without waiting for the step in progress: its thread would abort the process."""
    try:
        for action in (*_at_once, sys.stdout.flush, sys.stderr.flush):
            with contextlib.suppress(Exception):
                action()
    finally:  # whatever else is interrupted
        os._exit(status)


def _threads_of_its_own() -> list[threading.Thread]:
    """Threads that Python waits for and that are not ours; one of them may be waiting for a run."""
    main = threading.main_thread()
    return [
        one
        for one in threading.enumerate()
        if not (one is main or one.daemon or one.name.startswith("workbench-") or _is_idle(one))
    ]


def _is_idle(thread: threading.Thread) -> bool:
    """Whether it is an executor's thread that waits for work: it ends on request."""
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage] - documented, in spite of its name
    executors = sys.modules["concurrent.futures.thread"].__file__
    return frame is not None and frame.f_code.co_filename == executors


_register_early: Callable[[Callable[[], None]], None] | None
_register_early = getattr(threading, "_register_atexit", None)
if _register_early is not None:
    # their callbacks are registered first and therefore called after this one: until then
    # executors, which a step in progress may need (loading data, compiling), accept work
    import_module("concurrent.futures.thread")
    with contextlib.suppress(ImportError):  # a platform without semaphores has no processes
        import_module("concurrent.futures.process")
    _register_early(_before_threads_are_waited_for)
atexit.register(_after_threads_were_waited_for)
