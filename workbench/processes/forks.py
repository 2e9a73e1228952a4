"""Forking of worker processes at moments when no experiment computes.

On Linux a `DataLoader` forks its workers. A fork has one thread, and every lock in its state at
that moment: a lock that another thread held, inside torch as well, is never released there, and a
worker that needs it waits for ever. So a fork by Workbench waits for the steps under way, and the
next steps wait for it; this costs the time of a step at the beginning of an epoch, and nothing
else.

The user's own computation in a cell, on the main thread, is not waited for, as in plain PyTorch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import ContextDecorator, contextmanager

_LONGEST_S = 20.0
"""How many seconds either waits for the other. A step may take longer (a compile) or stop forever
(a debugger): then the fork is as in plain PyTorch."""


class Computing(ContextDecorator):
    """Context that a thread enters to compute a step, from its first operation to its last."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset, with no thread computing or forking: in a fork, which has no other threads."""
        self._changed = threading.Condition(threading.Lock())
        self._depths: dict[int, int] = {}
        self._forking: dict[int, int] = {}
        """For each forking thread, the nesting depth of its own steps."""
        self._of_thread = threading.local()

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            depth = self._depths.get(me, 0)
            if self._forking and not depth:
                self._changed.wait_for(lambda: not self._forking, _LONGEST_S)
            self._depths[me] = depth + 1

    def __exit__(self, *_error: object) -> None:
        me = threading.get_ident()
        with self._changed:
            self._depths[me] -= 1
            if not self._depths[me]:
                del self._depths[me]
                if self._forking:
                    self._changed.notify_all()

    @contextmanager
    def forking(self) -> Generator[None]:
        """Let each fork of this thread wait for running steps, for forks that continue in Python.

        A program that is started (``!ls``, a compiler) needs no lock of this process and does not
        wait.
        """
        self._of_thread.forks = True
        try:
            yield
        finally:
            self._of_thread.forks = False

    def before_fork(self) -> None:
        """Wait until no other thread computes.

        Two threads that fork at the same time, each within a step of its own, do not wait for each
        other.
        """
        if not getattr(self._of_thread, "forks", False):
            return
        me = threading.get_ident()
        with self._changed:
            self._forking[me] = self._depths.pop(me, 0)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._depths, _LONGEST_S)

    def after_fork(self) -> None:
        """Let steps continue, in the process that forked."""
        me = threading.get_ident()
        if me not in self._forking:
            return
        with self._changed:
            if depth := self._forking.pop(me):
                self._depths[me] = depth
            self._changed.notify_all()


computing = Computing()
"""The context of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=computing.before_fork,
        after_in_parent=computing.after_fork,
        after_in_child=computing.forget,
    )
