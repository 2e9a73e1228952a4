"""Slow work on a thread of its own, so that the caller can continue meanwhile.

A simulated allocator takes up to seconds for a long recording, and so does a large PDF. A kernel's
main thread runs cells and a panel's hub answers Stop, so neither does such work itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from workbench.experiment.runtime import at_exit

T = TypeVar("T")

_THREAD = "workbench-background"

log = logging.getLogger("workbench")


def run_in_background(
    make: Callable[[], T], lock: threading.Lock, done: Callable[[T | None, str], None]
) -> None:
    """Make something on a thread of its own.

    Args:
        make: the function that makes it.
        lock: held while it is made: work that shares a lock runs one at a time.
        done: called on that thread, exactly once and in every case: with what was made and ``""``,
            or with None and one sentence.
    """

    def run() -> None:
        made, error = None, ""
        try:
            with lock:
                made = make()
        except Exception as reason:  # every failure is an answer
            log.debug("%s failed", make, exc_info=True)
            error = str(reason) or type(reason).__name__
        done(made, error)

    thread = threading.Thread(target=run, name=_THREAD, daemon=True)
    if not at_exit.started(thread):
        run()


def _wait_for_all() -> None:
    for thread in threading.enumerate():
        if thread.name == _THREAD:
            thread.join()


# after runs: the work may be waiting for a step to end
at_exit.register(at_exit.Phase.WRITERS, _wait_for_all)
